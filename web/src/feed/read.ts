/** What is read of an event, whose payload has a shape that nobody promised. */

import { fields, textOf } from "@runreel/client/fold";

/** Milliseconds since the epoch with the wire's microseconds kept as a fraction. */
export function atMs(at: string): number {
  const micros = at.length === 27 ? Number(at.slice(23, 26)) / 1000 : 0;
  return Date.parse(at) + micros;
}

/** `tool.started` → `started`. */
export const verbOf = (type: string) => type.slice(type.lastIndexOf(".") + 1);

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
