/** Deeper values become "…": the server takes 64 levels, and the event has some of its own. */
const depth_max = 60;
/** Characters of a payload's JSON; the server takes bodies of 8 MiB, and over 64 KiB makes an artifact of it. */
const json_chars_max = 2_000_000;
const head_chars = 2_000;

/** NUL and lone surrogates, which the server refuses. */
const clean = (text: string) => text.replaceAll("\0", "").replace(/\p{Surrogate}/gu, "\uFFFD");

/** The value as JSON can hold it: cycles end at the depth that is bounded anyway, what has no form becomes text. */
function plain(value: unknown, depth: number): unknown {
  if (typeof value === "string") return clean(value);
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "object" || value === null) return value;
  if (depth > depth_max) return "…";
  if (value instanceof Error) return { type: clean(value.name), message: clean(value.message) };
  const told = value as { toJSON?: () => unknown };
  if (typeof told.toJSON === "function") return plain(told.toJSON(), depth + 1);
  if (value instanceof Map) value = Object.fromEntries(value);
  if (value instanceof Set) value = [...(value as Set<unknown>)];
  if (Array.isArray(value)) return value.map((each) => plain(each, depth + 1));
  const members = Object.entries(value as object).map(([name, each]) => [
    clean(name),
    plain(each, depth + 1),
  ]);
  return Object.fromEntries(members) as unknown;
}

/** What failed, as `run.failed`, `tool.failed` … tell it: `{type, message}`. */
export function described(error: unknown): unknown {
  if (error instanceof Error) return error;
  return { type: "Error", message: typeof error === "string" ? error : encoded(error) };
}

/** The JSON of any value; never throws. One that is too long is replaced by its beginning. */
export function encoded(value: unknown): string {
  let json: string;
  try {
    json = JSON.stringify(plain(value, 0)) ?? "null";
  } catch (error) {
    // A getter or a toJSON of the host's.
    return JSON.stringify({ $unreadable: clean(String(error)) });
  }
  if (json.length <= json_chars_max) return json;
  const $head = clean(json.slice(0, head_chars));
  return JSON.stringify({ $truncated: true, $bytes: json.length, $head });
}
