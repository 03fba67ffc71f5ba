import type { RunEvent } from "./events.js";
import { familyOf, fields, isTerminal, statusAfter, textOf } from "./read.js";

/** A question of a run to a person. */
export interface Interrupt {
  /** The id to answer: the `span_id` of its `interrupt.requested`. */
  interrupt_id: string;
  run_id: string;
  seq: number;
  /** `approval`, `question`, or the producer's own word; `interrupt` if there is none. */
  kind: string;
  /** The text for the person; null when the producer sent none. */
  prompt: string | null;
  /** RFC 3339; after it the answer is `expired`. */
  expires_at: string | null;
  /** The whole payload of the producer, usually an object. */
  payload: unknown;
}

/**
 * The interrupts of one run by the server's own rule: requested, not resolved, and the run has not ended. The first
 * request of a span is the one that is answered, and a span that was resolved never opens again.
 */
export class Interrupts {
  /** By id, in the order in which they were asked. */
  readonly open = new Map<string, Interrupt>();
  /** What closed each of the others: a decision, or the end of the run (`run completed` …). */
  readonly closed = new Map<string, string>();

  take(event: RunEvent): void {
    const { type, span_id: id } = event;
    const status = statusAfter(type);
    if (status !== null && isTerminal(status)) {
      for (const open of this.open.keys()) this.#close(open, `run ${status}`);
    }
    if (familyOf(type) !== "interrupt" || !id) return;
    if (type === "interrupt.resolved")
      this.#close(id, textOf(fields(event.payload)["decision"]) ?? "resolved");
    else if (!this.open.has(id) && !this.closed.has(id)) this.open.set(id, interruptOf(id, event));
  }

  #close(id: string, by: string): void {
    this.open.delete(id);
    this.closed.set(id, by);
  }
}

function interruptOf(interrupt_id: string, event: RunEvent): Interrupt {
  const { run_id, seq, payload } = event;
  const { kind, prompt, expires_at } = fields(payload);
  return {
    interrupt_id,
    run_id,
    seq,
    kind: textOf(kind) || "interrupt",
    prompt: textOf(prompt) || null,
    expires_at: textOf(expires_at),
    payload,
  };
}
