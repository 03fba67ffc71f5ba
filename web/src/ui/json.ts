/** What the tree shows of a JSON value; nothing below a closed node is looked at. */
export const jsonLimits = { page_children: 100, text_chars: 1_000, openDepth: 2 };

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
