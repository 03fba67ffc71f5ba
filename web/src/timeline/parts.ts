import type { RunEvent } from "@runreel/client";
import { familyOf, fields } from "@runreel/client/fold";

const inputs = ["args", "input", "arguments", "prompt", "messages"];
const outputs = ["result", "output", "content", "text", "value"];
/** The members that the page shows elsewhere. */
const elsewhere = new Set(["name", "title", "error", "duration_ms", "run_id"]);

function first(payload: unknown, names: readonly string[]): unknown {
  const from = fields(payload);
  const name = names.find((each) => from[each] !== undefined && from[each] !== null);
  return name === undefined ? undefined : from[name];
}

/** The input of a span, from its first event. */
export const inputOf = (event: RunEvent): unknown => first(event.payload, inputs);

/** The output of a span, from its last event. */
export function outputOf(event: RunEvent): unknown {
  const payload = fields(event.payload);
  // A payload that became an artifact is shown as one.
  return "$artifact" in payload ? payload : first(payload, outputs);
}

/** Whether an event has an error; a message that broke off does, too. */
export const isFailure = ({ type, payload }: RunEvent): boolean =>
  type.endsWith(".failed") || type === "log.error" || (fields(payload)["error"] ?? null) !== null;

/** The members that are neither; for a `log` or `run` event, also those that the page shows elsewhere. */
export function restOf(events: readonly RunEvent[], known: { input: unknown; output: unknown }): unknown {
  const rest: Record<string, unknown> = {};
  let isWhole = false;
  for (const { type, payload } of events) {
    if (typeof payload !== "object" || payload === null || Array.isArray(payload)) return payload;
    isWhole ||= familyOf(type) === "log" || familyOf(type) === "run";
    if (payload === known.output) continue;
    for (const [name, value] of Object.entries(payload)) {
      if (value === known.input || value === known.output || (elsewhere.has(name) && !isWhole)) continue;
      rest[name] = value;
    }
  }
  return Object.keys(rest).length === 0 ? undefined : rest;
}

/** The parts of a message's content, as they are shown. */
export type Part = { kind: "text"; text: string } | { kind: "other"; value: unknown };

export function partsOf(content: unknown): Part[] | null {
  if (!Array.isArray(content) || content.length === 0) return null;
  const isContent = content.every((part) => typeof fields(part)["type"] === "string");
  if (!isContent) return null;
  return content.map((part) => {
    const { type, text } = fields(part);
    return type === "text" && typeof text === "string"
      ? { kind: "text", text }
      : { kind: "other", value: part };
  });
}
