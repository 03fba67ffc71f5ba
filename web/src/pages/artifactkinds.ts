import type { OwnedArtifact } from "../api/artifacts";
import { previewKind } from "../timeline/preview";

/** The kinds by which the gallery can be filtered. */
export const kinds = [
  { id: "image", name: "images" },
  { id: "text", name: "texts" },
  { id: "table", name: "tables" },
  { id: "json", name: "JSON" },
  { id: "other", name: "other files" },
] as const;

/** The kind of an artifact among them. */
export function kindOf(artifact: Pick<OwnedArtifact, "media_type" | "name">): (typeof kinds)[number]["id"] {
  const kind = previewKind(artifact);
  if (kind === "markdown") return "text";
  return kind ?? "other";
}

/** Whether it is of the kind and has the words in its name, its run's title or its agent's name. */
export function matches(artifact: OwnedArtifact, kind: string, q: string): boolean {
  if (kind !== "" && kindOf(artifact) !== kind) return false;
  const text = `${artifact.name} ${artifact.run_title ?? ""} ${artifact.agent ?? ""}`.toLowerCase();
  return q
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

/** The extension of a name, for artifacts without a preview. */
export function endingOf(name: string): string {
  const at = name.lastIndexOf(".");
  return at > 0 && name.length - at <= 9 ? name.slice(at + 1) : "file";
}
