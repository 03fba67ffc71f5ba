/**
 * The JSON of events that arrived in full or were opened. Bounded, the oldest are forgotten first; a forgotten event
 * can be requested again, since events never change.
 */
export class Bodies {
  readonly #bytes = new Map<number, string>();
  /** The kept seqs in order of arrival, from `#oldest` on: a map's first key is slow to find after deletions. */
  #seqs: number[] = [];
  #oldest = 0;
  #chars = 0;

  constructor(
    readonly chars_max = 8_000_000,
    readonly one_chars_max = 64_000,
  ) {}
  put(seq: number, bytes: string): void {
    if (bytes.length > this.one_chars_max || this.#bytes.has(seq)) return;
    this.#bytes.set(seq, bytes);
    this.#seqs.push(seq);
    this.#chars += bytes.length;
    while (this.#chars > this.chars_max) this.#forgetOldest();
  }

  get(seq: number): string | null {
    return this.#bytes.get(seq) ?? null;
  }

  #forgetOldest(): void {
    const seq = this.#seqs[this.#oldest] as number;
    this.#oldest += 1;
    this.#chars -= this.#bytes.get(seq)?.length ?? 0;
    this.#bytes.delete(seq);
    if (this.#oldest < 10_000) return;
    this.#seqs = this.#seqs.slice(this.#oldest);
    this.#oldest = 0;
  }
}
