import { isTerminal, type RunEvent } from "../api/types";
import { atMs, familyOf, fields, textOf, titleOf, verbOf } from "./read";

/** What a run asks of a person. */
export interface Interrupt {
  interrupt_id: string;
  seq: number;
  kind: string;
  prompt: string;
  expires_ms: number | null;
  /** The members that have something else to say to a person. */
  details: [string, unknown][];
}

const short_chars = 300;

/**
 * The interrupts of one run by the server's own rule: requested, not resolved, and the run goes on. The first
 * request of a span is the one that is answered, and a span that was resolved never opens again.
 */
export class Interrupts {
  readonly open = new Map<string, Interrupt>();
  /** What closed each of the others: a decision, or the end of the run. */
  readonly closed = new Map<string, string>();

  take(event: RunEvent): void {
    const family = familyOf(event.type);
    const verb = verbOf(event.type);
    if (family === "run" && isTerminal(verb)) {
      for (const id of this.open.keys()) this.#close(id, `run ${verb}`);
    }
    const id = event.span_id;
    if (family !== "interrupt" || !id) return;
    if (verb === "resolved") this.#close(id, textOf(fields(event.payload)["decision"]) ?? verb);
    else if (!this.open.has(id) && !this.closed.has(id)) this.open.set(id, interruptOf(id, event));
  }

  #close(id: string, by: string): void {
    this.open.delete(id);
    this.closed.set(id, by);
  }
}

function interruptOf(interrupt_id: string, event: RunEvent): Interrupt {
  const { kind, prompt, expires_at, checkpoint_id: _, ns: __, ...details } = fields(event.payload);
  const told = textOf(prompt) || textOf(event.payload) || titleOf(event.type, event.payload);
  const json = JSON.stringify(event.payload);
  return {
    interrupt_id,
    seq: event.seq,
    kind: textOf(kind) || "interrupt",
    prompt: told || json.slice(0, short_chars),
    expires_ms: atMs(textOf(expires_at) ?? "") || null,
    // Nothing is told twice.
    details: told || json.length > short_chars ? Object.entries(details) : [],
  };
}
