import { described } from "./described.js";

/** Deeper values become "…": the server accepts 64 levels, and the event has some of its own. */
const depth_max = 60;
/** Maximum number of objects and arrays in one payload: a graph of shared objects can expand without end. */
const objects_max = 100_000;
/** Maximum characters of a payload's JSON; the server accepts 8 MiB, and makes an artifact of more than 64 KiB. */
const json_chars_max = 2_000_000;
const head_chars = 2_000;

/** JSON without what the server refuses: escaped NULs and lone surrogates, unless their backslash is itself escaped. */
const clean = (json: string) => json.replace(/\\u(?:0000|d[89a-f]..)(?<=(?:^|[^\\])(?:\\\\)*\\u....)/g, "");

/** The JSON of any value; never throws. A value that is too long is replaced by its beginning. */
export function encoded(value: unknown): string {
  /** The ancestors of the current value. */
  const path: unknown[] = [];
  let left = objects_max;
  function plain(this: unknown, _: string, value: unknown): unknown {
    if (typeof value === "bigint") return String(value);
    if (typeof value !== "object" || value === null) return value;
    if (value instanceof Error) value = described(value);
    if (value instanceof Map || value instanceof Set) value = [...value];
    while (path.length > 0 && path.at(-1) !== this) path.pop();
    left -= 1;
    if (left < 0 || path.length > depth_max || path.includes(value)) return "…";
    path.push(value);
    return value;
  }
  let json: string;
  try {
    json = clean(JSON.stringify(value, plain) ?? "null");
  } catch {
    // A getter or a toJSON of the host threw.
    return '"…"';
  }
  if (json.length <= json_chars_max) return json;
  return encoded({ $truncated: true, $bytes: json.length, $head: json.slice(0, head_chars) });
}
