import type { Query } from "@runreel/client";
import { histogramOf, type Histogram } from "../api/runlists";

/** Minimum time between two counts. */
const again_ms = 2_000;

/** The number of runs by time and status, for the filter of a list; counted again as runs change. */
export class RunCounts {
  answer = $state.raw<Histogram | null>(null);
  #query: Query | null = null;
  #running: AbortController | null = null;
  /** Whether runs changed during the current count. */
  #isBehind = false;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #looked_ms = -Infinity;

  ask(query: Query): void {
    if (JSON.stringify(query) === JSON.stringify(this.#query)) return;
    this.#query = query;
    this.#running?.abort();
    void this.#count();
  }

  /** Schedules a count after an event that may change the counts. */
  touch(): void {
    const wait_ms = Math.max(0, this.#looked_ms + again_ms - Date.now());
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      // A hidden tab counts once it is visible again.
      if (document.visibilityState === "hidden") {
        this.#looked_ms = Date.now();
        this.touch();
      } else if (this.#running !== null) this.#isBehind = true;
      else void this.#count();
    }, wait_ms);
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#running?.abort();
    this.#query = null;
  }

  async #count(): Promise<void> {
    if (this.#query === null) return;
    this.#looked_ms = Date.now();
    const abort = (this.#running = new AbortController());
    const answer = await histogramOf(this.#query, abort.signal).catch(() => null);
    if (abort.signal.aborted) return;
    // The list shows the error; a histogram of another query would be wrong.
    this.answer = answer;
    this.#running = null;
    if (this.#isBehind) this.touch();
    this.#isBehind = false;
  }
}
