/**
 * The events' own JSON, kept for the detail pane within a bound and forgotten oldest first. What is no
 * longer here is one request away: events never change.
 */
export class Bodies {
  readonly #bytes = new Map<number, string>();
  #chars = 0;

  constructor(
    readonly chars_max = 16_000_000,
    readonly one_chars_max = 64_000,
  ) {}

  put(seq: number, bytes: string): void {
    if (bytes.length > this.one_chars_max || this.#bytes.has(seq)) return;
    this.#bytes.set(seq, bytes);
    this.#chars += bytes.length;
    while (this.#chars > this.chars_max) this.#forgetOldest();
  }

  get(seq: number): string | null {
    return this.#bytes.get(seq) ?? null;
  }

  #forgetOldest(): void {
    const oldest = this.#bytes.entries().next().value;
    if (oldest === undefined) return;
    this.#bytes.delete(oldest[0]);
    this.#chars -= oldest[1].length;
  }
}
