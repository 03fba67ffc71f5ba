import { untrack } from "svelte";

/** When what stands above the rows has been drawn. Until then these are not seen, so that nothing moves. */
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

  /** Nothing more is waited for. */
  show(): void {
    this.#left = [];
  }
}
