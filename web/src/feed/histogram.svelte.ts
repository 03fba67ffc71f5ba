import type { Query } from "@runreel/client";
import { histogramOf, type Histogram } from "../api/runlists";

/** How often it is counted at most while things happen. */
const again_ms = 2_000;

/** How many runs there are by time and status, for the filter of a list; counted anew while it changes. */
export class RunCounts {
  answer = $state.raw<Histogram | null>(null);
  #query: Query | null = null;
  #running: AbortController | null = null;
  /** Whether something happened while it was counted. */
  #isBehind = false;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #looked_ms = -Infinity;

  ask(query: Query): void {
    if (JSON.stringify(query) === JSON.stringify(this.#query)) return;
    this.#query = query;
    this.#running?.abort();
    void this.#count();
  }

  /** Something happened that may change the counts. */
  touch(): void {
    const wait_ms = Math.max(0, this.#looked_ms + again_ms - Date.now());
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      // A tab that nobody sees counts when it is seen again.
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
    // The list says what is wrong; a picture of something else would be wrong too.
    this.answer = answer;
    this.#running = null;
    if (this.#isBehind) this.touch();
    this.#isBehind = false;
  }
}
