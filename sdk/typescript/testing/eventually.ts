import { vi } from "vitest";

/** What a test waits for, milliseconds: more than a busy machine needs. */
const timeout = 20_000;

/** Asks again until the assertion holds, and gives its result; fails with what it said last. */
export function eventually<T>(holds: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(holds, { timeout, interval: 20 });
}
