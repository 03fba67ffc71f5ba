/**
 * The shapes of the wire by short names. They come from `schema.ts`, which is generated from the server's OpenAPI document
 * (`npm run generate`); what a stream carries beyond that document is in `events.ts`.
 */

import type { RunEvent } from "./events.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** A run: its identity, status, input, output and timestamps. */
export type Run = Schemas["Run"];
/** `queued`, `running`, `waiting`, `interrupted`, or one of the terminal `completed`, `failed`, `cancelled`. */
export type RunStatus = Schemas["Status"];
/** The role of a run: `agent`, `supervisor`, `worker`, or the server's own `router`. */
export type Role = Schemas["Role"];
/** A page of runs, newest first; `next_cursor` is null on the last one. */
export type RunPage = Schemas["RunList"];
/** A new run. Every member is optional. */
export type CreateRun = Schemas["CreateRun"];
/** The spans of a run and their sums, computed from the log on request. */
export type Timeline = Schemas["RunTimeline"];
/** A bar of the waterfall. Times are milliseconds since the start of the run. */
export type TimelineSpan = Schemas["Span"];
/** Sums over a run: milliseconds, counts by type, usage. */
export type TimelineSummary = Schemas["Summary"];
/** `running`, `completed` or `failed`. */
export type SpanStatus = Schemas["SpanStatus"];
/** How a person may answer an interrupt; the other decisions are the server's. */
export type Decision = Exclude<Schemas["Decision"], "expired" | "cancelled">;
/** An event as a producer sends it. */
export type NewEvent = Schemas["EmitEvent"];
/** The reply to a request to emit: a seq for each event, null for a delta. */
export type EmitReply = Schemas["EmitReply"];
/** A message of a thread. */
export type ThreadMessage = Schemas["ThreadMessage"];
/** A page of them, oldest first. */
export type MessagePage = Schemas["MessageList"];
/** An API token without its secret, and a new one with it. */
export type Token = Schemas["Token"];
export type NewToken = Schemas["NewToken"];

/**
 * An error response (RFC 9457). `code` is the stable word; `title`, `detail` and `hint` are for people. Looser than the
 * server's own: a newer server may have newer codes, and a problem made here (no connection, a proxy's page) has neither
 * `type` nor `detail`.
 */
export type Problem = Omit<Schemas["Problem"], "code" | "type" | "detail"> & {
  code: string;
  type?: string;
  detail?: string;
};

/** A page of a run's log; continue with `after: last_id` while `has_more`. */
export type EventPage = Omit<Schemas["EventPage"], "events"> & { events: RunEvent[] };
