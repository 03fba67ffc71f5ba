/** Called for every event of the page's streams; null until it is loaded. */
let listener: ((type: string) => void) | null = null;

export function onHear(callback: (type: string) => void): void {
  listener = callback;
}

export function hear(type: string): void {
  listener?.(type);
}
