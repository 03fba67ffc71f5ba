import type { SpanText } from "@runreel/client/fold";

/** After which event each text began: calls made in the meantime are shown below it, also once it is complete. */
export class Begun {
  readonly #open = new Map<string, number>();
  readonly #done = new WeakMap<SpanText, number>();

  /** Notes that a text begins after `seq`, unless it began before. */
  at(span_id: string, seq: number): void {
    if (!this.#open.has(span_id)) this.#open.set(span_id, seq);
  }

  /** Takes the event `seq`, which may have completed the last text and closed the span `closed`. */
  take(last: SpanText | undefined, seq: number, closed: string | null): void {
    if (last?.seq === seq) this.#done.set(last, this.#open.get(last.span_id) ?? seq);
    if (closed !== null) this.#open.delete(closed);
  }

  /** Takes over where texts began from another instance, for its open texts and these. */
  join(end: Begun, done: readonly SpanText[]): void {
    for (const [span_id, seq] of end.#open) this.#open.set(span_id, seq);
    for (const text of done) this.#done.set(text, end.placeOf(text));
  }

  placeOf(text: SpanText): number {
    return text.seq === null
      ? (this.#open.get(text.span_id) ?? Infinity)
      : (this.#done.get(text) ?? text.seq);
  }
}
