import type { Run } from "@runreel/client";
import { isTerminal } from "@runreel/client/fold";
import { runs } from "../api/client";

const children_max = 200;
/** Between two polls while children are active; and after an event about children. */
const children_ms = 5_000;
const soon_ms = 300;

/** The direct children of a run; polled while some of them are active. */
export class Children {
  list = $state.raw<Run[]>([]);
  #timer: ReturnType<typeof setTimeout> | null = null;

  readonly #abort = new AbortController();

  constructor(readonly run_id: string) {}

  async look(): Promise<void> {
    this.#rest();
    const { signal } = this.#abort;
    try {
      this.list = (await runs.list({ parent_run_id: this.run_id, limit: children_max }, signal)).runs;
    } catch {
      // The next poll may succeed.
    }
    if (!signal.aborted && this.list.some((child) => !isTerminal(child.status))) this.#lookAfter(children_ms);
  }

  lookSoon(): void {
    this.#lookAfter(soon_ms);
  }

  stop(): void {
    this.#abort.abort();
    this.#rest();
  }

  #rest(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #lookAfter(after_ms: number): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      // A hidden tab asks once it is visible again.
      if (document.visibilityState === "hidden") this.#lookAfter(children_ms);
      else void this.look();
    }, after_ms);
  }
}
