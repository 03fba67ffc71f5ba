import { usageOf, type CallUsage as Call, type RunUsage } from "../api/usage";

const page_calls = 1_000;
const soon_ms = 1_000;

/** A run's usage: tokens and cost of the run, of its tree, by model and by call. Unknown values are null. */
export class Usage {
  current = $state.raw<RunUsage | null>(null);
  readonly #calls = new Map<number, Call>();
  #next: string | null = null;
  #isWhole = false;
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(
    readonly run_id: string,
    readonly signal: AbortSignal,
  ) {
    void this.#look();
  }

  /** Schedules a request after a new call; several calls within a second share one. */
  lookSoon(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      if (!this.signal.aborted) void this.#look();
    }, soon_ms);
  }

  /** The model call of an event; null when it is none. */
  async callAt(seq: number): Promise<Call | null> {
    while (!this.#calls.has(seq) && !this.#isWhole) {
      const last = [...this.#calls.keys()].at(-1) ?? 0;
      if (last > seq) return null;
      await this.#page(this.#next);
    }
    return this.#calls.get(seq) ?? null;
  }

  async #look(): Promise<void> {
    try {
      this.current = await this.#page(null);
    } catch {
      // The next request may succeed.
    }
  }

  async #page(cursor: string | null): Promise<RunUsage> {
    const page = await usageOf(this.run_id, { cursor, limit: page_calls }, this.signal);
    for (const call of page.calls) this.#calls.set(call.seq, call);
    this.#next = page.next_cursor ?? null;
    this.#isWhole = this.#next === null;
    return page;
  }
}
