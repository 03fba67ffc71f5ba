import type { Gap, RunEvent, RunStatus, StreamEvent } from "@runreel/client";
import { familyOf, Interrupts, isTerminal, statusAfter, Texts } from "@runreel/client/fold";
import { Bodies } from "./bodies";
import type { EventRow } from "./row";
import { Spans } from "./spans";
import { Begun } from "./begun";

/**
 * A run, folded from its frames and the pages of its index. The fold is pure (no clock, no network, no randomness):
 * the same rows give the same view. It grows in place, because copying 100 000 rows for each event would dominate the
 * cost.
 */
export class RunView {
  readonly rows: EventRow[] = [];
  readonly spans = new Spans();
  readonly texts = new Texts();
  /** Where each text began, which is where it is shown. */
  readonly begun = new Begun();
  readonly bodies: Bodies;
  readonly interrupts = new Interrupts();
  readonly gaps: Gap[] = [];
  /** The number of events of each family. */
  readonly families = new Map<string, number>();
  status: RunStatus | null = null;
  last_seq = 0;
  started_ms: number | null = null;
  ended_ms: number | null = null;
  last_at_ms = 0;
  errors = 0;
  tools = 0;
  messages = 0;
  /** The number of events that name a child run; when it grows, the children have changed. */
  children = 0;
  /** The last event with an error, and the last message of the assistant. */
  error: EventRow | null = null;
  answer: EventRow | null = null;
  /** The first event that arrived in full: earlier texts and interrupts are as short as their titles. */
  whole_from = Infinity;
  ended = false;
  /** The log was read to its end at least once: an interrupt that is open then is open now. */
  caughtUp = false;

  constructor(bodies = new Bodies()) {
    this.bodies = bodies;
  }

  /** Takes the next event, which arrived in full. */
  take(row: EventRow, event: RunEvent, data: string): void {
    this.whole_from = Math.min(this.whole_from, event.seq);
    this.bodies.put(event.seq, data);
    this.#take(row, event);
  }

  /** Takes a frame that is not in the log: tokens, and control frames. */
  takeFrame(event: Exclude<StreamEvent, RunEvent>): void {
    switch (event.type) {
      case "message.snapshot":
        this.texts.snapshot(event);
        return this.#begins(event.span_id);
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
        this.texts.delta(event);
        return this.#begins(event.span_id ?? "");
    }
  }

  /** A late delta of a complete text does not begin one. */
  #begins(span_id: string): void {
    if (this.texts.open.has(span_id)) this.begun.at(span_id, this.last_seq);
  }

  /** Takes the next event as a row of the index. */
  takeRow(row: EventRow): void {
    this.#take(row, stubOf(row));
  }

  /** Appends a view of the run's end, of which these rows are the beginning, and takes over its state. */
  join(end: RunView): void {
    const texts = end.texts.done.filter((text) => (text.seq ?? 0) >= end.whole_from);
    this.begun.join(end.begun, texts);
    for (const row of end.rows) {
      if (row.seq <= this.last_seq) continue;
      if (row.seq < end.whole_from) this.takeRow(row);
      else {
        while (texts[0]?.seq === row.seq) this.texts.done.push(texts.shift() as (typeof texts)[number]);
        this.#take(row, null);
      }
    }
    for (const [id, text] of end.texts.open) this.texts.open.set(id, text);
    for (const [id, asked] of end.interrupts.open) this.interrupts.open.set(id, asked);
    for (const [id, by] of end.interrupts.closed) {
      this.interrupts.open.delete(id);
      this.interrupts.closed.set(id, by);
    }
    this.gaps.push(...end.gaps);
    this.whole_from = end.whole_from;
    this.ended = end.ended;
    this.caughtUp = end.caughtUp;
  }

  /** The time of the last event, not the latest time: producers may report events late. */
  get now_ms(): number {
    return this.rows.at(-1)?.at_ms ?? 0;
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

  #take(row: EventRow, event: RunEvent | null): void {
    this.rows.push(row);
    this.spans.take(row);
    if (event !== null) {
      if (row.span_id !== null && /^(message|reasoning)\.started$/.test(row.type))
        this.begun.at(row.span_id, row.seq);
      this.texts.event(event);
      const closes = /\.(completed|failed)$/.test(row.type);
      this.begun.take(this.texts.done.at(-1), row.seq, closes ? row.span_id : null);
      this.interrupts.take(event);
    }
    this.last_seq = row.seq;
    this.last_at_ms = Math.max(this.last_at_ms, row.at_ms);
    const family = familyOf(row.type);
    this.families.set(family, (this.families.get(family) ?? 0) + 1);
    if (row.level === "error") {
      this.errors += 1;
      // The run's own failure comes last, and may have no text.
      if (row.title !== "" || this.error === null) this.error = row;
    }
    if (row.type === "tool.started") this.tools += 1;
    if (row.type === "message.completed") {
      this.messages += 1;
      if (roleOf(row) === "assistant") this.answer = row;
    }
    if (family === "worker") this.children += 1;
    // A run that is reported late began with its earliest event.
    if (this.started_ms !== null) this.started_ms = Math.min(this.started_ms, row.at_ms);
    const status = statusAfter(row.type);
    if (status === null) return;
    this.status = status;
    if (row.type === "run.started") this.started_ms = row.at_ms;
    if (isTerminal(status)) this.ended_ms = row.at_ms;
  }
}

/** The role of a message: the index puts it before the text, except for the assistant. */
const roleOf = (row: EventRow): string =>
  /^(user|system|tool|developer|human): /.exec(row.title)?.[1] ?? "assistant";

/** An event made from its row, as far as texts and interrupts need it; null if they do not. */
function stubOf(row: EventRow): RunEvent | null {
  const { type, title } = row;
  const family = familyOf(type);
  const isText = (family === "message" || family === "reasoning") && /\.(completed|failed)$/.test(type);
  if (!isText && family !== "interrupt" && statusAfter(type) === null) return null;
  const role = roleOf(row);
  const text = role === "assistant" ? title : title.slice(role.length + 2);
  const payload = family === "interrupt" ? { decision: title.split(" ")[0] } : { role, text };
  return { ...row, run_id: "", role: "agent", payload } as unknown as RunEvent;
}
