/** Bounds of the wait before reconnecting, with full jitter, so that a thousand tabs do not reconnect at once. */
export const floor_ms = 250;
export const ceiling_ms = 15_000;

/**
 * Milliseconds before attempt `attempt` (0 = the first one after a cut).
 * `base_ms` is the server's `retry:`; `random` is in [0, 1). A `Retry-After` is a lower bound, never cut.
 */
export function backoff(attempt: number, base_ms: number, random: number, retryAfter_ms = 0): number {
  const base = Math.min(Math.max(base_ms, floor_ms), ceiling_ms);
  const top = Math.min(base * 2 ** Math.min(attempt, 16), ceiling_ms);
  return Math.max(floor_ms + random * (top - floor_ms), retryAfter_ms);
}

/** A day: a timer of more than 24 days would fire at once. */
const wait_ms_max = 86_400_000;

/** `Retry-After` in seconds or as a date, at most a day; 0 when there is none. */
export function retryAfterMs(header: string | null, now: number): number {
  const seconds = Number(header);
  const wait_ms = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(header ?? "") - now;
  return Math.min(Math.max(0, wait_ms || 0), wait_ms_max);
}

/** Whether a request with this status may succeed later; 0 is no answer at all. */
export function isPassing(status: number): boolean {
  return status === 0 || status >= 500 || [408, 425, 429].includes(status);
}
