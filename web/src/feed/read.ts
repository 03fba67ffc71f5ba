/** Readers of an event's members. */

/** Milliseconds since the epoch with the wire's microseconds kept as a fraction. */
export function atMs(at: string): number {
  const micros = at.length === 27 ? Number(at.slice(23, 26)) / 1000 : 0;
  return Date.parse(at) + micros;
}

/** `tool.started` → `started`. */
export const verbOf = (type: string) => type.slice(type.lastIndexOf(".") + 1);
