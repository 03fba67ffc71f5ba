import { firstHit, type Hit } from "../api/runlists";

/** Maximum number of concurrent requests. */
const asked_max = 3;

/** Where in a run the words were found; requested only for visible rows. */
export class Hits {
  found = $state.raw<ReadonlyMap<string, Hit>>(new Map());
  #q = "";
  #abort = new AbortController();
  #known = new Set<string>();
  #waiting: string[] = [];
  #asked = 0;

  /** Sets other words, and forgets what was found before. */
  lookFor(q: string): void {
    if (q === this.#q) return;
    this.stop();
    this.#q = q;
    this.#abort = new AbortController();
    this.#known = new Set();
    this.found = new Map();
  }

  /** Called when the row of this run is visible. */
  seen(run_id: string): void {
    if (this.#q === "" || this.#known.has(run_id)) return;
    this.#known.add(run_id);
    this.#waiting.push(run_id);
    this.#next();
  }

  stop(): void {
    this.#abort.abort();
    this.#waiting = [];
    this.#asked = 0;
  }

  #next(): void {
    while (this.#asked < asked_max) {
      const run_id = this.#waiting.shift();
      if (run_id === undefined) return;
      this.#asked += 1;
      void this.#ask(run_id);
    }
  }

  async #ask(run_id: string): Promise<void> {
    const { signal } = this.#abort;
    try {
      const hit = await firstHit(run_id, this.#q, signal);
      if (hit !== null && !signal.aborted) this.found = new Map(this.found).set(run_id, hit);
    } catch {
      // The row then shows the run's outcome, as without a search.
    }
    if (signal.aborted) return;
    this.#asked -= 1;
    this.#next();
  }
}
