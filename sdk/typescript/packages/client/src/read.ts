import type { Fields } from "./events.js";
import type { RunStatus } from "./types.js";

/** The members of a payload, whose shape is not guaranteed; none when it is not an object. */
export function fields(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

/** The value if it is a text, else null. */
export function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

/** The first word of a type: `tool` of `tool.started`. */
export function familyOf(type: string): string {
  return type.split(".", 1)[0] as string;
}

/**
 * The text of a message: `content` as parts or as a string, or `text`; the preview of a payload that became an
 * artifact.
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

const terminal = new Set<string>(["completed", "failed", "cancelled"]);

/** Whether a run in this status never gets another event. */
export function isTerminal(status: string): boolean {
  return terminal.has(status);
}

const statuses = new Map<string, RunStatus>([
  ["run.created", "queued"],
  ["run.started", "running"],
  ["run.waiting", "waiting"],
  ["run.interrupted", "interrupted"],
  ["run.resumed", "running"],
  ["run.completed", "completed"],
  ["run.failed", "failed"],
  ["run.cancelled", "cancelled"],
]);

/** A run's status after an event of this type; `null` when the type does not change it. */
export function statusAfter(type: string): RunStatus | null {
  return statuses.get(type) ?? null;
}
