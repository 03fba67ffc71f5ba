/**
 * The shapes of the wire, by the names the UI uses. They come from `@runreel/client`, which has them from the server's
 * OpenAPI document; what a stream carries beyond that document is written here.
 */

import type { components } from "@runreel/client";

type Schemas = components["schemas"];

export type Run = Schemas["Run"];
export type RunStatus = Schemas["Status"];
export type RunPage = Schemas["RunList"];
export type Timeline = Schemas["RunTimeline"];
export type TimelineSpan = Schemas["Span"];
export type TimelineSummary = Schemas["Summary"];
/** What a person may say to an interrupt; the other decisions are the server's. */
export type Decision = Exclude<Schemas["Decision"], "expired" | "cancelled">;
/** An API token without its secret, and a new one with it. */
export type Token = Schemas["Token"];
export type NewToken = Schemas["NewToken"];
export type SpanStatus = Schemas["SpanStatus"];

/**
 * RFC 9457. `code` is the stable word; `title` is for people. Looser than the server's own: a newer server may
 * have newer codes, and a problem made here (no connection, a proxy's page) has neither `type` nor `detail`.
 */
export type Problem = Omit<Schemas["Problem"], "code" | "type" | "detail"> & {
  code: string;
  type?: string;
  detail?: string;
};

/** A durable event: it has a place in the log. */
export type RunEvent = Omit<Schemas["RunEvent"], "seq"> & { seq: number };

export type EventPage = Omit<Schemas["EventPage"], "events"> & { events: RunEvent[] };

/** A token or an output chunk: live only, never a row. `offset` counts Unicode characters. */
export type DeltaEvent = Omit<Schemas["RunEvent"], "seq" | "payload"> & {
  seq: null;
  payload: { text: string; offset: number };
};

/** The text so far of a span that was open when the stream joined; `offset` is its length in characters. */
export interface Snapshot {
  run_id: string;
  span_id: string;
  type?: string;
  role?: string;
  agent?: string | null;
  text: string;
  offset: number;
}

const terminal = new Set<string>(["completed", "failed", "cancelled"]);

/** A run in such a status never gets another event. */
export function isTerminal(status: string): boolean {
  return terminal.has(status);
}
