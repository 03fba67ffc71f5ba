import { router } from "./router.svelte";

/** A search field whose words stand in the address, there without the blanks around them. */
export class SearchField {
  #typed = $state("");
  /** What the address has as long as nobody else changed it. */
  #words: string | null = $state(null);
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #pause_ms: number;

  /** The address follows when nothing was typed for `pause_ms`. */
  constructor(pause_ms: number) {
    this.#pause_ms = pause_ms;
  }

  /** What the field shows while the address has these words: what was typed, with the blank behind it. */
  shows(words: string): string {
    return words === this.#words ? this.#typed : words;
  }

  readonly type = (event: Event): void => {
    clearTimeout(this.#timer);
    this.#typed = (event.target as HTMLInputElement).value;
    this.#words = router.param("q") ?? "";
    this.#timer = setTimeout(() => {
      this.#words = this.#typed.trim();
      router.set({ q: this.#words });
    }, this.#pause_ms);
  };

  /** What was typed last does not reach the address any more. */
  forget(): void {
    clearTimeout(this.#timer);
    this.#words = null;
  }
}
