import type { ArtifactRef } from "../api/artifacts";

/** How an artifact is shown; null when it can only be downloaded. */
export type PreviewKind = "image" | "table" | "markdown" | "json" | "text";

const images = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"]);

export function previewKind({
  media_type,
  name,
}: Pick<ArtifactRef, "media_type" | "name">): PreviewKind | null {
  const type = (media_type.split(";")[0] ?? "").trim().toLowerCase();
  const ending = name.slice(name.lastIndexOf(".") + 1).toLowerCase();
  if (images.has(type)) return "image";
  if (type === "text/csv" || type === "text/tab-separated-values" || ending === "csv" || ending === "tsv")
    return "table";
  if (type === "text/markdown" || ending === "md") return "markdown";
  if (/[/+]json$/.test(type)) return "json";
  // Markup is shown as plain text.
  const isText = type.startsWith("text/") || /[/+](xml|yaml|toml|javascript|x-ndjson|sql)$/.test(type);
  return isText || ["txt", "log", "yaml", "yml", "diff", "patch"].includes(ending) ? "text" : null;
}

const rows_max = 200;
const cells_max = 50;

/** Comma- or tab-separated values (RFC 4180), the first rows of them. */
export function tableOf(text: string, media_type: string): string[][] {
  const isTabbed = media_type.includes("tab-separated") || (!text.includes(",") && text.includes("\t"));
  const separator = isTabbed ? "\t" : ",";
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let isQuoted = false;
  const endCell = () => {
    if (row.length < cells_max) row.push(cell);
    cell = "";
  };
  const endRow = () => {
    endCell();
    rows.push(row);
    row = [];
  };
  for (let at = 0; at < text.length && rows.length < rows_max; at += 1) {
    const char = text[at] as string;
    if (isQuoted && char === '"' && text[at + 1] === '"') {
      cell += char;
      at += 1;
    } else if (char === '"' && (isQuoted || cell === "")) isQuoted = !isQuoted;
    else if (!isQuoted && char === separator) endCell();
    else if (!isQuoted && char === "\n") endRow();
    else if (isQuoted || char !== "\r") cell += char;
  }
  if ((cell !== "" || row.length > 0) && rows.length < rows_max) endRow();
  return rows;
}
