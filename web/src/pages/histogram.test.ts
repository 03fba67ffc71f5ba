import fc from "fast-check";
import { expect, test } from "vitest";
import { barsOf, labelsOf, rangeOf } from "./histogram";

const minute_ms = 60_000;
const at = (minute: number) => new Date(Date.UTC(2026, 10, 25, 12, minute)).toISOString();
const told = {
  since: at(0),
  until: at(4),
  bucket_ms: minute_ms,
  buckets: [
    { at: at(1), counts: { completed: 3, failed: 1 } },
    { at: at(3), counts: { running: 2 } },
  ],
  totals: { completed: 3, failed: 1, running: 2 },
};

test("buckets without runs are bars without a height", () => {
  const { bars, most } = barsOf(told);
  expect(most).toBe(4);
  expect(bars.map((bar) => bar.total)).toEqual([0, 4, 0, 2]);
  expect(bars[1]?.parts).toEqual([
    { status: "failed", count: 1, from: 0, to: 0.25 },
    { status: "completed", count: 3, from: 0.25, to: 1 },
  ]);
});

test("with statuses only their runs are counted", () => {
  const { bars, most } = barsOf(told, new Set(["failed"]));
  expect([most, bars.map((bar) => bar.total)]).toEqual([1, [0, 1, 0, 0]]);
});

test("a stretch between two bars is a filter, in whichever direction it was drawn", () => {
  const { bars } = barsOf(told);
  const stretch = { since: at(1), until: at(3) };
  expect(rangeOf(bars, 1, 2)).toEqual(stretch);
  expect(rangeOf(bars, 2, 1)).toEqual(stretch);
  expect(rangeOf(bars, 1, 9)).toBeNull();
});

test("bars lie side by side, and no part is outside of the picture", () => {
  const counts = fc.dictionary(
    fc.constantFrom("failed", "running", "completed"),
    fc.integer({ min: 1, max: 9 }),
  );
  fc.assert(
    fc.property(fc.array(counts, { maxLength: 8 }), fc.integer({ min: 0, max: 59_999 }), (all, offset_ms) => {
      const first_ms = Date.UTC(2026, 10, 25);
      const time = (ms: number) => new Date(first_ms + ms).toISOString();
      const buckets = all.map((counts, n) => ({ at: time(n * minute_ms), counts }));
      const whole = { ...told, since: time(offset_ms), until: time(8 * minute_ms), buckets };
      const { bars } = barsOf(whole);
      expect(bars).toHaveLength(8);
      bars.forEach((bar, n) => {
        expect(bar.until_ms).toBe(bars[n + 1]?.at_ms ?? first_ms + 8 * minute_ms);
        let below = 0;
        for (const part of bar.parts) {
          expect(part.from).toBeCloseTo(below);
          expect(part.to).toBeGreaterThan(part.from);
          below = part.to;
        }
        expect(below).toBeLessThanOrEqual(1 + 1e-9);
      });
    }),
  );
});

test("no more times are written than there is room for", () => {
  const { bars } = barsOf(told);
  expect(labelsOf(bars, 2).map((label) => label.at)).toEqual([0, 2]);
  expect(labelsOf(bars, 9)).toHaveLength(4);
});
