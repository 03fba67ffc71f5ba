import type { components } from "@runreel/client";
import { runPath } from "./paths";
import { transport } from "./client";

export type Artifact = components["schemas"]["RunArtifact"];

/** The members needed to show and to download an artifact. */
export type ArtifactRef = Pick<Artifact, "artifact_id" | "name" | "media_type" | "size">;

const page_artifacts = 100;

export async function artifactsOf(
  run_id: string,
  cursor: string | null,
  signal: AbortSignal,
): Promise<{ artifacts: Artifact[]; next_cursor: string | null }> {
  const query = { limit: page_artifacts, cursor };
  const page = await transport.json<{ artifacts: Artifact[]; next_cursor?: string | null }>(
    `${runPath(run_id)}/artifacts`,
    { query, signal },
  );
  return { artifacts: page.artifacts, next_cursor: page.next_cursor ?? null };
}

/** An artifact in the list over all runs. */
export type OwnedArtifact = components["schemas"]["OwnedArtifact"];

/** The artifacts of all runs, newest first. */
export const allArtifacts = (cursor: string | null, signal: AbortSignal) =>
  transport.json<components["schemas"]["OwnedArtifactList"]>("/api/artifacts", {
    query: { limit: page_artifacts, cursor },
    signal,
  });

/** An artifact's bytes, or the first `bytes_max` of them. */
export async function bytesOf(
  artifact_id: string,
  bytes_max: number | null,
  signal?: AbortSignal,
): Promise<Blob> {
  const headers = bytes_max === null ? {} : { range: `bytes=0-${bytes_max - 1}` };
  const path = `/api/artifacts/${encodeURIComponent(artifact_id)}`;
  return (await transport.call(path, { headers: { accept: "*/*", ...headers }, signal })).blob();
}

/** Downloads the bytes as a file: a plain link cannot send the token's header. */
export function saveAs(bytes: Blob, name: string): void {
  const address = URL.createObjectURL(bytes);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}
