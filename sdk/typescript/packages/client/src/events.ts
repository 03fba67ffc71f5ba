import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** Any JSON object; no member is guaranteed. */
export interface Fields {
  [member: string]: unknown;
}

/** The members of a payload over 64 KiB, in place of its own: where its JSON is, and the first 2 KiB of it. */
export interface Pointer {
  $artifact?: { artifact_id: string; sha256: string; size: number; media_type: string };
  preview?: string;
}

/** Numbers that the server sums: tokens, or whatever a producer counts. */
export type Usage = Record<string, unknown>;

interface Started extends Fields {
  name?: string;
}

interface Ended extends Fields {
  name?: string;
  /** Milliseconds, as the producer measured them. */
  duration_ms?: number;
  usage?: Usage;
}

/** An error as the packages send it. Other producers may send a text or anything else: `readFailure` reads every form. */
export interface SentError {
  /** The class, with its module where its language prints one: `KeyError`, `httpx.HTTPStatusError`. */
  type?: string;
  message?: string;
  /** A stable name, for programs. */
  code?: string;
  /** Lines, as the language prints them; at most 16 384 characters in one error and its causes. */
  stack?: string;
  cause?: SentError;
  /** The members of a group. */
  errors?: SentError[];
}

interface Failed extends Ended {
  error?: SentError | string | Fields;
}

interface CompletedText extends Ended {
  /** The role of a message: `assistant`, `user`, `system`, `tool` … */
  role?: string;
  content?: string | { type?: string; text?: string }[];
  text?: string;
  model?: string;
}

interface Log extends Fields {
  message?: string;
}

/**
 * Payloads by type: the closed families of the contract. The server does not check the members, hence all are optional.
 * Declare the types of your own families here to make them part of every union:
 *
 * ```ts
 * declare module "@runreel/client" {
 *   interface Payloads {
 *     "shop.ordered": { item: string };
 *   }
 * }
 * ```
 */
export interface Payloads {
  "run.created": Fields & { title?: string; agent?: string; thread_id?: string; input?: unknown };
  "run.started": Fields;
  "run.waiting": Fields & { reason?: string };
  "run.interrupted": Fields & { interrupt_id?: string };
  "run.resumed": Fields & { interrupt_id?: string; checkpoint_id?: string | null; ns?: string | null };
  "run.completed": Fields & { output?: unknown };
  "run.failed": Fields & { error?: Failed["error"] };
  "run.cancelled": Fields & { reason?: string };
  "step.started": Started;
  "step.completed": Ended;
  "step.failed": Failed;
  "tool.started": Started & { args?: unknown };
  "tool.completed": Ended & { result?: unknown };
  "tool.failed": Failed;
  "worker.spawned": Started & { run_id?: string };
  "worker.completed": Ended & { run_id?: string };
  "worker.failed": Failed & { run_id?: string };
  "message.completed": CompletedText;
  "reasoning.completed": CompletedText;
  "artifact.created": Fields & { artifact_id?: string; name?: string; media_type?: string; size?: number };
  "state.checkpointed": Fields;
  "state.compacted": Fields;
  "interrupt.requested": Fields & { kind?: string; prompt?: string; expires_at?: string };
  "interrupt.resolved": Fields & { decision?: Schemas["Decision"]; value?: unknown; resolved_by?: string };
  "log.debug": Log;
  "log.info": Log;
  "log.warn": Log;
  "log.error": Log;
}

type Envelope = Omit<Schemas["RunEvent"], "seq" | "type" | "payload">;

/** An event of one type. `seq` is its number in its run: 1, 2, 3 … without a gap. */
export interface EventOf<Type extends string, Payload> extends Envelope {
  type: Type;
  seq: number;
  payload: Payload & Pointer;
}

/**
 * A durable event, which has a place in the log. Its type determines the payload. Events of your own families arrive
 * like `custom.*`; those declared in {@link Payloads} have the payload declared there.
 */
export type RunEvent =
  | { [Type in keyof Payloads]: EventOf<Type, Payloads[Type]> }[keyof Payloads]
  | EventOf<`custom.${string}`, Fields>;

/** A token or an output chunk: live only, never in the log. `offset` is the number of its span's characters before. */
export interface DeltaEvent extends Envelope {
  type: `${string}.delta`;
  seq: null;
  payload: { text: string; offset: number };
}

/** The text so far of a span that is being written; it replaces what you have. `offset` is its length in characters. */
export interface Snapshot {
  type: "message.snapshot";
  /** The type of the deltas that continue it. */
  delta_type: string;
  run_id: string;
  span_id: string;
  role?: string;
  agent?: string | null;
  text: string;
  offset: number;
}

/** Everything stored so far has been delivered. In a feed, `cursor` is how far it was read. */
export interface CaughtUp {
  type: "stream.caught_up";
  last_seq: number | null;
  cursor: string | null;
}

/** Events after the cursor were deleted; the stream continues after them. Seqs; in a feed, a cursor and null. */
export interface Gap {
  type: "stream.gap";
  requested_after: number | string | null;
  first_seq: number | null;
}

/** The run (the tree) has ended, and you have all of it. */
export interface End {
  type: "stream.end";
  status: RunEnd;
  last_seq: number | null;
}

type RunEnd = "completed" | "failed" | "cancelled";

/** A run with a lease has fallen silent after `last_seq`, or no longer is; a later event of the run takes precedence. */
export interface Stalled {
  type: "stream.stalled";
  run_id: string;
  stalled: boolean;
  last_seq: number;
}

/** The server asks to reconnect later, which happens automatically. */
export interface Draining {
  type: "stream.draining" | "stream.reset";
  retry_ms: number;
  reason?: string;
}

/** The server's frames about the stream itself. */
export type Control = CaughtUp | Gap | End | Stalled | Draining;

/** Everything a stream yields, distinguished by `type`; {@link isEvent} selects what is in the log. */
export type StreamEvent = RunEvent | DeltaEvent | Snapshot | Control;

/** Whether it is a durable event, with a `seq` and a place in the log. */
export function isEvent(event: StreamEvent): event is RunEvent {
  return typeof (event as RunEvent).seq === "number";
}

/** Whether it is a delta: the next piece of a text that is being written. */
export function isDelta(event: StreamEvent): event is DeltaEvent {
  return !isEvent(event) && event.type.endsWith(".delta");
}

/** One frame as it arrived: its event, the cursor that resumes after it (null when none does), and its JSON. */
export interface Received {
  event: StreamEvent;
  id: string | null;
  data: string;
}

/** `null` for an unknown control frame, as a newer server may send: skipped, never an error. */
export function decode(type: string, id: string | null, data: string): Received | null {
  const frame = JSON.parse(data) as { seq?: unknown; type?: string };
  if (typeof frame.seq === "number") return { event: frame as RunEvent, id, data };
  if (type === "message.snapshot") {
    const event = { ...frame, type, delta_type: frame.type ?? "message.delta" } as Snapshot;
    return { event, id: null, data };
  }
  if (!type.startsWith("stream.")) return { event: frame as DeltaEvent, id: null, data };
  if (!/^stream\.(caught_up|gap|end|stalled|draining|reset)$/.test(type)) return null;
  return { event: { ...frame, type } as Control, id: null, data };
}
