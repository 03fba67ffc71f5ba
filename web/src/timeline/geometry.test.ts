import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { tickLabel, ticksOf, timeAt } from "./axis";
import { barOf, windowOf, without, zoomed } from "./geometry";
import { Spans } from "../feed/spans";
import type { EventRow } from "../feed/row";
import { SpanTree, type NewSpan } from "../feed/tree";
import { cutsOf as cutsIn } from "./lulls";
import { barsIn, drawnKinds, lanesOf } from "./overview";

/** The cuts of a run of which only the times of its events are known. */
const cutsOf = (events: { at_ms: number }[], window: Parameters<typeof cutsIn>[1]) =>
  cutsIn({ rows: events as EventRow[], spans: new Spans() }, window);

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
    // In a short window late in a run, labels differ.
    expect([3_600_050, 3_600_100, 599_900].map(tickLabel)).toEqual(["1 h 0.05 s", "1 h 0.1 s", "9 m 59.9 s"]);
  });

  test("a night in which nothing happened takes a twentieth of the width, and ticks leave it out", () => {
    const night = { from_ms: 10_000, to_ms: 10_000_000, isWait: false };
    const whole = { from_ms: 0, to_ms: 10_010_000 };
    const times = [0, 2_000, 10_000, 9_000, 10_010_000, 10_000_000, 20_000_000];
    const window = {
      ...whole,
      cuts: cutsOf(
        times.map((at_ms) => ({ at_ms })),
        whole,
      ),
    };
    expect(window.cuts).toEqual([night]);
    expect(barOf(night.from_ms, night.to_ms, window)).toEqual({ left: 47.5, width: 5 });
    expect(barOf(0, 10_000, window)).toEqual({ left: 0, width: 47.5 });
    expect(barOf(night.to_ms, whole.to_ms, window)).toEqual({ left: 52.5, width: 47.5 });
    for (const { offset_ms } of ticksOf(window, 6)) {
      expect(offset_ms < night.from_ms || offset_ms >= night.to_ms).toBe(true);
    }
  });

  test("a run of which nothing is known but its beginning and its end is drawn whole", () => {
    const whole = { from_ms: 0, to_ms: 3_600_000 };
    const cuts = cutsOf([{ at_ms: 0 }, { at_ms: 3_600_000 }], whole);
    expect(without(cuts, whole).cuts).toBeUndefined();
    // It goes on, and the later part would be squeezed.
    expect(without(cuts, { from_ms: 0, to_ms: 3_605_000 }).cuts).toEqual(cuts);
  });

  test("whatever is cut out, ticks are few, and in order", () => {
    const epoch = fc.constantFrom(0, 1.8e12, Date.parse("9999-12-31T23:00:00Z"));
    const times = fc.array(
      fc.oneof(fc.constant(0), fc.constant(1e6), fc.double({ min: 0, max: 1e6, noNaN: true })),
      { maxLength: 8 },
    );
    fc.assert(
      fc.property(
        epoch,
        times,
        fc.integer({ min: 2, max: 8 }),
        time,
        time,
        (epoch_ms, offsets, most, a, b) => {
          const whole = { from_ms: epoch_ms, to_ms: epoch_ms + 1e6 };
          const events = offsets.map((offset) => ({ at_ms: epoch_ms + offset }));
          const [from_ms, to_ms] = zoomed(whole, epoch_ms + Math.min(a, b) / 1e3, epoch_ms + Math.max(a, b));
          const seen = { from_ms, to_ms };
          const window = without(cutsOf(events, seen), seen);
          const places = ticksOf(window, most, whole.from_ms).map(({ at }) => at);
          expect(places.length).toBeLessThanOrEqual(2 * most + 1);
          expect(places).toEqual(places.toSorted((a, b) => a - b));
          expect(places.every((at) => at >= 0 && at < 100)).toBe(true);
        },
      ),
    );
  });

  test("the time at a place is the time that is drawn there", () => {
    const lull = { from_ms: 30_000, to_ms: 70_000 };
    fc.assert(
      fc.property(fc.double({ min: 0, max: 100_000, noNaN: true }), fc.boolean(), (ms, isCut) => {
        const window = { from_ms: 0, to_ms: 100_000, cuts: isCut ? [lull] : [] };
        expect(timeAt(barOf(ms, ms, window).left / 100, window)).toBeCloseTo(ms, -1);
      }),
    );
  });

  test("a zoom stays within the run", () => {
    const whole = { from_ms: 0, to_ms: 1000 };
    expect(zoomed(whole, -200, 300)).toEqual([0, 500]);
    expect(zoomed(whole, 900, 1400)).toEqual([500, 1000]);
    expect(zoomed(whole, -500, 5000)).toEqual([0, 1000]);
  });
});

test("the overview has each span in its lane, failures before others, and as many bars as columns at most", () => {
  const tree = new SpanTree();
  const add = (over: Partial<NewSpan>) =>
    tree.add({
      span_id: `${tree.spans.length}`,
      parent_span_id: null,
      kind: "tool",
      name: "",
      status: "completed",
      start_seq: 1,
      end_seq: 2,
      start_ms: 0,
      end_ms: 100,
      took_ms: 100,
      child_run_id: null,
      ...over,
    });
  add({ kind: "run" });
  add({ kind: "step", span_id: "s", start_ms: 0, end_ms: 50 });
  for (let at = 0; at < 1_000; at += 1)
    add({
      parent_span_id: "s",
      start_ms: at / 20,
      end_ms: at / 20 + 0.01,
      status: at === 500 ? "failed" : "completed",
    });
  const [run, step, tools] = lanesOf(tree, { from_ms: 0, to_ms: 100 }, 100);
  expect(barsIn(run as Uint8Array)).toEqual([{ from: 0, to: 100, number: 1 }]);
  expect(barsIn(step as Uint8Array)).toEqual([{ from: 0, to: 50, number: 2 }]);
  expect(barsIn(tools as Uint8Array).map(({ from, to, number }) => [from, to, drawnKinds[number]])).toEqual([
    [0, 25, "tool"],
    [25, 26, "failed"],
    [26, 50, "tool"],
  ]);
});
