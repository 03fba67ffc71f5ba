import { isTerminal, type RunEvent, type RunStatus } from "../api/types";
import { Bodies } from "./bodies";
import type { FeedMessage } from "./frames";
import { Interrupts } from "./interrupts";
import { atMs, familyOf, titleOf } from "./read";
import { Spans } from "./spans";
import { Texts } from "./texts";

/** What the list shows of an event, and no more: the body stays out until it is opened. */
export interface EventRow {
  seq: number;
  at_ms: number;
  type: string;
  span_id: string | null;
  title: string;
  tone: "plain" | "warn" | "error";
}

/** Events that are gone: those after `requested_after` and before `first_seq`, when the server knows it. */
export interface Gap {
  requested_after: number;
  first_seq: number | null;
}

/**
 * A run as its frames tell it. `take` is a pure fold (no clock, no network, no randomness): the same frames
 * give the same view. It grows in place, because a copy of 100 000 rows per event would be the whole cost.
 */
export class RunView {
  readonly rows: EventRow[] = [];
  readonly spans = new Spans();
  readonly texts = new Texts();
  readonly bodies = new Bodies();
  readonly interrupts = new Interrupts();
  readonly gaps: Gap[] = [];
  status: RunStatus | null = null;
  last_seq = 0;
  started_ms: number | null = null;
  ended_ms: number | null = null;
  last_at_ms = 0;
  errors = 0;
  tools = 0;
  messages = 0;
  ended = false;
  /** The log was read to its end at least once: what is open then is open now. */
  caughtUp = false;
  #types = new Map<string, string>();

  take(message: FeedMessage): void {
    switch (message.kind) {
      case "event":
        return this.#event(message.event, message.bytes);
      case "delta":
        return this.texts.delta(message.delta);
      case "snapshot":
        return this.texts.snapshot(message.snapshot);
      case "gap":
        this.gaps.push({ requested_after: message.requested_after, first_seq: message.first_seq });
        return;
      case "end":
        this.ended = true;
        this.texts.close();
        return;
      case "caught_up":
        this.caughtUp = true;
        return;
      case "draining":
        return;
    }
  }

  /** The index of the row of `seq`, or of the first one after it. */
  indexOf(seq: number): number {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.rows[middle] as EventRow).seq < seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #event(event: RunEvent, bytes: string): void {
    const row = this.#row(event);
    this.rows.push(row);
    this.bodies.put(event.seq, bytes);
    this.spans.take(event);
    this.texts.event(event);
    this.interrupts.take(event);
    this.last_seq = event.seq;
    this.last_at_ms = Math.max(this.last_at_ms, row.at_ms);
    if (row.tone === "error") this.errors += 1;
    if (event.type === "tool.started") this.tools += 1;
    if (event.type === "message.completed") this.messages += 1;
    // A run that is told of late began with the first thing that happened in it.
    if (this.started_ms !== null) this.started_ms = Math.min(this.started_ms, row.at_ms);
    const status = statusAfter(event.type);
    if (status === null) return;
    this.status = status;
    if (event.type === "run.started") this.started_ms = row.at_ms;
    if (isTerminal(status)) this.ended_ms = row.at_ms;
  }

  #row(event: RunEvent): EventRow {
    const type = this.#shared(event.type);
    return {
      seq: event.seq,
      at_ms: atMs(event.at),
      type,
      span_id: event.span_id ?? null,
      title: titleOf(type, event.payload),
      tone: toneOf(type),
    };
  }

  /** One copy of each type's name instead of one per event. */
  #shared(type: string): string {
    const known = this.#types.get(type);
    if (known !== undefined) return known;
    if (this.#types.size < 1000) this.#types.set(type, type);
    return type;
  }
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

/** The run's status after an event of this type; `null` when it says nothing about it. */
export function statusAfter(type: string): RunStatus | null {
  return statuses.get(type) ?? null;
}

function toneOf(type: string): EventRow["tone"] {
  if (type.endsWith(".failed") || type === "log.error") return "error";
  if (type === "log.warn" || type === "run.cancelled" || familyOf(type) === "interrupt") return "warn";
  return "plain";
}
