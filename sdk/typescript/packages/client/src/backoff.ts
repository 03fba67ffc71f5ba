/** How long to wait before connecting again: full jitter, so that a thousand tabs do not come back at once. */
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

/** `Retry-After` in seconds or as a date; 0 when there is none. */
export function retryAfterMs(header: string | null, now: number): number {
  if (header === null || header.trim() === "") return 0;
  const seconds = Number(header);
  if (Number.isFinite(seconds)) return Math.max(0, seconds * 1000);
  const date = Date.parse(header);
  return Number.isNaN(date) ? 0 : Math.max(0, date - now);
}

/** Whether a request that got this status may be answered otherwise later; 0 is no answer at all. */
export function isPassing(status: number): boolean {
  return status === 0 || status >= 500 || [408, 425, 429].includes(status);
}
