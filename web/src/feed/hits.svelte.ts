import { firstHit, type Hit } from "../api/runlists";

/** Requests at a time. */
const asked_max = 3;

/** Where in a run the words were found, asked for the rows that somebody sees. */
export class Hits {
  found = $state.raw<ReadonlyMap<string, Hit>>(new Map());
  #q = "";
  #abort = new AbortController();
  #known = new Set<string>();
  #waiting: string[] = [];
  #asked = 0;

  /** Other words: what was found before is forgotten. */
  lookFor(q: string): void {
    if (q === this.#q) return;
    this.stop();
    this.#q = q;
    this.#abort = new AbortController();
    this.#known = new Set();
    this.found = new Map();
  }

  /** The row of this run is seen. */
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
      // The row then shows how the run went, as without a search.
    }
    if (signal.aborted) return;
    this.#asked -= 1;
    this.#next();
  }
}
