import { vi } from "vitest";

import { patience_ms } from "./log.ts";

/** Asks again until the assertion holds, and gives its result; fails with what it said last. */
export function eventually<T>(holds: () => T | Promise<T>): Promise<T> {
  return vi.waitFor(holds, { timeout: patience_ms, interval: 20 });
}
