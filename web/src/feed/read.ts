/** What a row says of an event, whose payload has a shape that nobody promised. */

import { familyOf, fields, messageText, textOf } from "@runreel/client/fold";

/** Milliseconds since the epoch with the wire's microseconds kept as a fraction. */
export function atMs(at: string): number {
  const micros = at.length === 27 ? Number(at.slice(23, 26)) / 1000 : 0;
  return Date.parse(at) + micros;
}

/** `tool.started` → `started`. */
export const verbOf = (type: string) => type.slice(type.lastIndexOf(".") + 1);

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

const preview_chars_max = 100;
const preview_members_max = 8;

/** A value in a few words: the members of an object, without what is inside of them. */
export function previewOf(value: unknown): string {
  if (value === undefined || value === null) return "";
  if (typeof value === "string") return oneLine(value).slice(0, preview_chars_max);
  if (typeof value !== "object") return String(value);
  if (Array.isArray(value)) return value.length === 1 ? previewOf(value[0]) : `[${value.length}]`;
  const members = Object.entries(value).slice(0, preview_members_max);
  return members
    .map(([name, member]) => `${name}: ${shortOf(member)}`)
    .join(", ")
    .slice(0, preview_chars_max);
}

function shortOf(value: unknown): string {
  if (Array.isArray(value)) return `[${value.length}]`;
  if (typeof value === "object" && value !== null) return "{…}";
  return typeof value === "string" ? oneLine(value).slice(0, 60) : String(value);
}

/** What went wrong, as the event or the run tells it; empty when it does not. */
export function errorOf(payload: unknown): string {
  const from = fields(payload);
  const error = from["error"] ?? payload;
  const text =
    textOf(error) ??
    textOf(fields(error)["message"]) ??
    textOf(fields(error)["detail"]) ??
    textOf(from["message"]) ??
    textOf(from["preview"]) ??
    "";
  return text.trim();
}
