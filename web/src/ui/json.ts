/** How much of a JSON value the tree shows; nothing below a closed node is visited. */
export const jsonLimits = { page_children: 50, text_chars: 1_000, open_lines: 24, open_depth: 3 };

/** Whether a node is open at first: the outermost, and small ones with few siblings. */
export function opensItself(value: unknown, depth: number, siblings: number): boolean {
  const kind = kindOf(value);
  if (kind !== "object" && kind !== "array") return false;
  return depth === 0 || (depth < jsonLimits.open_depth && siblings * sizeOf(value) <= jsonLimits.open_lines);
}

export type JsonKind = "object" | "array" | "text" | "plain";

export function kindOf(value: unknown): JsonKind {
  if (Array.isArray(value)) return "array";
  if (typeof value === "object" && value !== null) return "object";
  return typeof value === "string" ? "text" : "plain";
}

export function childrenOf(value: unknown, limit: number): [string, unknown][] {
  if (Array.isArray(value)) return value.slice(0, limit).map((child, index) => [String(index), child]);
  const children: [string, unknown][] = [];
  const from = value as Record<string, unknown>;
  for (const name in from) {
    if (children.length >= limit) break;
    children.push([name, from[name]]);
  }
  return children;
}

export function sizeOf(value: unknown): number {
  return Array.isArray(value) ? value.length : Object.keys(value as object).length;
}
