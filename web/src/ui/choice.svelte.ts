/** A setting of the pages' appearance, kept in the browser; the first value is the default. */
export class Choice<T extends string> {
  readonly #key: string;
  readonly #attribute: string;
  readonly values: readonly T[];
  current = $state.raw<T>() as T;

  constructor(key: string, attribute: string, values: readonly T[]) {
    this.#key = key;
    this.#attribute = attribute;
    this.values = values;
    this.current = this.#stored();
  }

  /** Sets it on the root element, where the styles read it. */
  apply(): void {
    const root = document.documentElement;
    if (this.current === this.values[0]) delete root.dataset[this.#attribute];
    else root.dataset[this.#attribute] = this.current;
  }

  next(): void {
    this.set(this.values[(this.values.indexOf(this.current) + 1) % this.values.length] as T);
  }

  set(value: T): void {
    this.current = value;
    try {
      localStorage.setItem(this.#key, value);
    } catch {
      // The choice then lasts as long as the page.
    }
    this.apply();
  }

  #stored(): T {
    try {
      const value = localStorage.getItem(this.#key);
      return this.values.find((each) => each === value) ?? (this.values[0] as T);
    } catch {
      return this.values[0] as T;
    }
  }
}
