import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Run } from "@runreel/client";
import { LeaseWatch, lookAfter_ms } from "./lease";

const run = (over: Partial<Run>): Run =>
  ({ status: "running", stalled: false, lease_ms: null, ...over }) as Run;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("document", { visibilityState: "visible" });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test("runs are looked at twice in a lease, within bounds, and not at all when none can be broken", () => {
  expect(lookAfter_ms([])).toBeNull();
  expect(lookAfter_ms([run({}), run({ status: "completed", lease_ms: 30_000 })])).toBeNull();
  expect(lookAfter_ms([run({ lease_ms: 30_000 }), run({ lease_ms: 8_000 })])).toBe(4_000);
  expect(lookAfter_ms([run({ lease_ms: 100 })])).toBe(1_000);
  expect(lookAfter_ms([run({ lease_ms: 3_600_000 })])).toBe(15_000);
  expect(lookAfter_ms([run({ lease_ms: 100, stalled: true })])).toBe(15_000);
});

test("a page asks again before a second lease is over, a hidden one when it is seen, a closed one never", () => {
  let looks = 0;
  const watch = new LeaseWatch(() => Promise.resolve(void (looks += 1)));
  watch.watch([run({ lease_ms: 4_000 })]);
  watch.watch([run({ lease_ms: 4_000 })]);
  vi.advanceTimersByTime(2_000);
  expect(looks).toBe(1);
  watch.watch([run({ lease_ms: 4_000 })]);
  vi.stubGlobal("document", { visibilityState: "hidden" });
  vi.advanceTimersByTime(20_000);
  expect(looks).toBe(1);
  vi.stubGlobal("document", { visibilityState: "visible" });
  vi.advanceTimersByTime(2_000);
  expect(looks).toBe(2);
  watch.watch([run({ lease_ms: 4_000 })]);
  watch.stop();
  vi.advanceTimersByTime(60_000);
  expect(looks).toBe(2);
});
