import { untrack } from "svelte";

/** Tracks whether the parts above the rows have been drawn. Until then the rows are hidden, so that nothing moves. */
export class Above<Part extends string> {
  #left = $state.raw<readonly Part[]>([]);

  constructor(parts: readonly Part[]) {
    this.#left = parts;
  }

  get isDrawn(): boolean {
    return this.#left.length === 0;
  }

  drawn(part: Part): void {
    untrack(() => {
      if (this.#left.includes(part)) this.#left = this.#left.filter((each) => each !== part);
    });
  }

  /** Stops waiting. */
  show(): void {
    this.#left = [];
  }
}
