/** Small readers of values whose shape nobody promised: payloads are the producers' own. */

export type Fields = Record<string, unknown>;

export function fields(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

export function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

/** Milliseconds since the epoch with the wire's microseconds kept as a fraction. */
export function atMs(at: string): number {
  const micros = at.length === 27 ? Number(at.slice(23, 26)) / 1000 : 0;
  return Date.parse(at) + micros;
}

const firstWord = (type: string) => type.slice(0, type.indexOf(".") < 0 ? undefined : type.indexOf("."));
const lastWord = (type: string) => type.slice(type.lastIndexOf(".") + 1);

/** `tool.started` → family `tool`, verb `started`. */
export const familyOf = firstWord;
export const verbOf = lastWord;

/**
 * The text of a message: `content` as parts or as a string, or `text`. A payload that became an artifact
 * has its preview.
 */
export function messageText(payload: unknown): string | null {
  const { content, text, preview } = fields(payload);
  if (typeof content === "string") return content;
  if (Array.isArray(content)) {
    const parts = content.map((part) => textOf(fields(part)["text"])).filter((part) => part !== null);
    if (parts.length > 0) return parts.join("");
  }
  return textOf(text) ?? textOf(preview);
}

const title_chars_max = 120;

/** What a row says beside its type, in one line; empty when the payload has nothing to say. */
export function titleOf(type: string, payload: unknown): string {
  const from = fields(payload);
  const error = from["error"];
  const found =
    textOf(from["title"]) ??
    textOf(from["name"]) ??
    textOf(from["message"]) ??
    (familyOf(type) === "log" ? textOf(from["text"]) : null) ??
    textOf(error) ??
    textOf(fields(error)["message"]) ??
    (familyOf(type) === "message" || familyOf(type) === "reasoning" ? messageText(payload) : null) ??
    textOf(from["reason"]) ??
    textOf(from["tool"]) ??
    "";
  return oneLine(found);
}

function oneLine(text: string): string {
  if (text.length <= title_chars_max && !/\s\s|[\n\r\t]/.test(text)) return text;
  // The regular expression also copies the text, so that a short title does not keep a long payload alive.
  return text.slice(0, title_chars_max).replace(/\s+/g, " ").trim();
}
