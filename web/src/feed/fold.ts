import { isEvent, type Gap, type Received, type RunEvent, type RunStatus } from "@runreel/client";
import { familyOf, Interrupts, isTerminal, statusAfter, Texts } from "@runreel/client/fold";
import { Bodies } from "./bodies";
import { Facts } from "./facts";
import { atMs, titleOf } from "./read";
import { Spans } from "./spans";

/** What the list shows of an event, and no more: the body stays out until it is opened. */
export interface EventRow {
  seq: number;
  at_ms: number;
  type: string;
  span_id: string | null;
  title: string;
  tone: "plain" | "warn" | "error";
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
  readonly facts = new Facts();
  readonly interrupts = new Interrupts();
  readonly gaps: Gap[] = [];
  /** How many events each family has. */
  readonly families = new Map<string, number>();
  status: RunStatus | null = null;
  last_seq = 0;
  started_ms: number | null = null;
  ended_ms: number | null = null;
  last_at_ms = 0;
  errors = 0;
  tools = 0;
  messages = 0;
  /** Events that name a child run: when it grows, there is something new to know of the children. */
  children = 0;
  ended = false;
  /** The log was read to its end at least once: what is open then is open now. */
  caughtUp = false;
  #types = new Map<string, string>();

  take({ event, data }: Received): void {
    if (isEvent(event)) return this.#event(event, data);
    switch (event.type) {
      case "message.snapshot":
        return this.texts.snapshot(event);
      case "stream.gap":
        this.gaps.push(event);
        return;
      case "stream.end":
        this.ended = true;
        this.texts.close();
        return;
      case "stream.caught_up":
        this.caughtUp = true;
        return;
      case "stream.stalled":
      case "stream.draining":
      case "stream.reset":
        return;
      default:
        return this.texts.delta(event);
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
    this.facts.take(event);
    this.last_seq = event.seq;
    this.last_at_ms = Math.max(this.last_at_ms, row.at_ms);
    const family = familyOf(row.type);
    this.families.set(family, (this.families.get(family) ?? 0) + 1);
    if (row.tone === "error") this.errors += 1;
    if (event.type === "tool.started") this.tools += 1;
    if (event.type === "message.completed") this.messages += 1;
    if (family === "worker") this.children += 1;
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

function toneOf(type: string): EventRow["tone"] {
  if (type.endsWith(".failed") || type === "log.error") return "error";
  if (type === "log.warn" || type === "run.cancelled" || familyOf(type) === "interrupt") return "warn";
  return "plain";
}
