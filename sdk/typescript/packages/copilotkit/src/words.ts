import { createHash } from "node:crypto";

/** An AG-UI event. */
export interface Said {
  type: string;
  [member: string]: unknown;
}

/** An AG-UI message, with the members that are read here. */
export interface Spoken {
  id?: unknown;
  role?: unknown;
  content?: unknown;
  toolCallId?: unknown;
}

/** Maximum characters of an id that is used unchanged as a span id. */
const id_chars_max = 100;

/** The span id for an id: unchanged if valid, else `id-` and the beginning of its SHA-256. */
export function fitted(id: string): string {
  const fits = id !== "" && id.length <= id_chars_max && !/\p{Cc}/u.test(id);
  return fits ? id : `id-${createHash("sha256").update(id).digest("hex").slice(0, 32)}`;
}

export const textOf = (value: unknown): string => (typeof value === "string" ? value : "");

/** The events that are logged with their members, as `agui.` and their type in lower case. */
export const noted = new Set([
  "ACTIVITY_DELTA",
  "ACTIVITY_SNAPSHOT",
  "CUSTOM",
  "MESSAGES_SNAPSHOT",
  "RAW",
  "REASONING_ENCRYPTED_VALUE",
  "STATE_DELTA",
  "STATE_SNAPSHOT",
  "SUBAGENT_ERROR",
  "SUBAGENT_FINISHED",
  "SUBAGENT_STARTED",
]);

/** The members of an event without its type and time: `toolCallId` is `tool_call_id` in the log. */
export function asLogged({ type: _, timestamp: __, ...members }: Said): Record<string, unknown> {
  const ours = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(Object.entries(members).map(([name, value]) => [ours(name), value]));
}

export function asSaid(type: string, members: Record<string, unknown>): Said {
  const theirs = (name: string) => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
  return {
    type,
    ...Object.fromEntries(Object.entries(members).map(([name, value]) => [theirs(name), value])),
  };
}
