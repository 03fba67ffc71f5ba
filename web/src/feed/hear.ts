/** Somebody who wants to know of every event that the page's streams bring; nobody until it is loaded. */
let listener: ((type: string) => void) | null = null;

export function onHear(told: (type: string) => void): void {
  listener = told;
}

export function hear(type: string): void {
  listener?.(type);
}
