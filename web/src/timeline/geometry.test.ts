import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { barOf, tickLabel, ticksOf, windowOf } from "./geometry";

const time = fc.double({ min: 0, max: 1e9, noNaN: true });

describe("the waterfall's geometry", () => {
  test("a bar lies where its times are", () => {
    const window = windowOf(1000, 2000, 0);
    expect(barOf(1250, 1500, window)).toEqual({ left: 25, width: 25 });
  });

  test("a running span reaches to the end of what is drawn", () => {
    const window = windowOf(1000, null, 3000);
    expect(barOf(2000, null, window)).toEqual({ left: 50, width: 50 });
  });

  test("a bar never leaves the window, whatever the clocks say", () => {
    fc.assert(
      fc.property(time, time, time, time, (start, end, from, to) => {
        const { left, width } = barOf(start, end, windowOf(from, to, 0));
        expect(left).toBeGreaterThanOrEqual(0);
        expect(width).toBeGreaterThanOrEqual(0);
        expect(left + width).toBeLessThanOrEqual(100.001);
      }),
    );
  });

  test("a run of no length still has a window", () => {
    expect(windowOf(5, 5, 0)).toEqual({ from_ms: 5, to_ms: 6 });
  });

  test("ticks begin at zero, are few, and never go past the end", () => {
    fc.assert(
      fc.property(
        fc.double({ min: 0.01, max: 1e10, noNaN: true }),
        fc.integer({ min: 2, max: 10 }),
        (total, most) => {
          const ticks = ticksOf({ from_ms: 0, to_ms: total }, most);
          expect(ticks[0]).toEqual({ at: 0, offset_ms: 0 });
          expect(ticks.length).toBeLessThanOrEqual(most + 1);
          for (const tick of ticks) expect(tick.at).toBeLessThan(100);
        },
      ),
    );
  });

  test("ticks are round for people", () => {
    const labels = (total: number) =>
      ticksOf({ from_ms: 0, to_ms: total }, 5).map((tick) => tickLabel(tick.offset_ms));
    expect(labels(1000)).toEqual(["0", "200 ms", "400 ms", "600 ms", "800 ms"]);
    expect(labels(9000)).toEqual(["0", "2 s", "4 s", "6 s", "8 s"]);
    expect(labels(150_000)).toEqual(["0", "30 s", "1 m", "1 m 30 s", "2 m"]);
    expect(labels(5 * 3_600_000)).toEqual(["0", "1 h", "2 h", "3 h", "4 h"]);
  });
});
