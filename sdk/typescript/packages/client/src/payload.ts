import { described } from "./described.js";

/** Deeper values become "…": the server takes 64 levels, and the event has some of its own. */
const depth_max = 60;
/** Objects and arrays in one payload: what is all connected to itself has no end. */
const objects_max = 100_000;
/** Characters of a payload's JSON; the server takes bodies of 8 MiB, and over 64 KiB makes an artifact of it. */
const json_chars_max = 2_000_000;
const head_chars = 2_000;

/** JSON without what the server refuses in it: escaped NULs and lone surrogates. An escaped backslash is none of them. */
const clean = (json: string) => json.replace(/\\u(?:0000|d[89a-f]..)(?<=(?:^|[^\\])(?:\\\\)*\\u....)/g, "");

/** The JSON of any value; never throws. One that is too long is replaced by its beginning. */
export function encoded(value: unknown): string {
  /** The objects around the value that is looked at. */
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
    // A getter or a toJSON of the host's.
    return '"…"';
  }
  if (json.length <= json_chars_max) return json;
  return encoded({ $truncated: true, $bytes: json.length, $head: json.slice(0, head_chars) });
}
