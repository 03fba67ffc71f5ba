import fc from "fast-check";
import { expect, test } from "vitest";
import { rowOf } from "../feed/eventrow";
import { RunView } from "../feed/fold";
import { lengthOf } from "../feed/spans";
import { event, inSpan, told, tell } from "../feed/testing";
import type { Span } from "../feed/tree";
import { barOf, windowOf, without } from "./geometry";
import { cutsOf } from "./lulls";

const second = 1_000;

/** Calls of tools: how long each takes, how long nothing happens before it, and whether it is in a step. */
const calls = fc.array(
  fc.record({
    idle_s: fc.integer({ min: 0, max: 200 }),
    took_s: fc.integer({ min: 0, max: 200 }),
    /** How long a person is asked within it; `tells`: whether it reports its own duration. */
    asks_s: fc.constantFrom(0, 0, 60, 400),
    tells: fc.boolean(),
    isInStep: fc.boolean(),
  }),
  { minLength: 1, maxLength: 8 },
);

type Call = { idle_s: number; took_s: number; asks_s: number; tells: boolean; isInStep: boolean };

function runOf(made: readonly Call[]): RunView {
  const view = new RunView();
  let [seq, ms] = [0, 0];
  const say = (type: string, over: Parameters<typeof event>[2] = {}) =>
    tell(view, told(event((seq += 1), type, { ...over, ms })));
  say("run.started");
  for (const [at, { idle_s, took_s, asks_s, tells, isInStep }] of made.entries()) {
    const place = inSpan(`t${at}`, isInStep ? `s${at}` : undefined);
    ms += (idle_s * second) / 2;
    if (isInStep) say("step.started", inSpan(`s${at}`));
    ms += (idle_s * second) / 2;
    say("tool.started", { ...place, payload: { name: "look" } });
    ms += took_s * second;
    if (asks_s > 0) {
      say("run.interrupted");
      ms += asks_s * second;
      say("run.resumed");
    }
    say("tool.completed", { ...place, payload: tells ? { duration_ms: took_s * second } : {} });
    if (isInStep) say("step.completed", inSpan(`s${at}`));
  }
  ms += second;
  say("run.completed");
  return view;
}

const wall = (span: Span) => (span.end_ms ?? 0) - span.start_ms;

test("no bar is narrower than a shorter one outside of a cut, and each is as long as its number", () => {
  fc.assert(
    fc.property(calls, (made) => {
      const view = runOf(made);
      const { tree } = view.spans;
      const root = tree.root as Span;
      const seen = windowOf(root.start_ms, root.end_ms, 0);
      const cuts = cutsOf(view, seen);
      const window = without(cuts, seen, 600);
      const drawn = tree.spans.slice(1).map((span) => {
        const held = view.spans.heldIn(span, 0);
        const work_ms = wall(span) - lengthOf(held);
        expect(work_ms).toBeCloseTo(span.took_ms ?? 0, 3);
        const width = [{ from_ms: span.start_ms, to_ms: span.end_ms ?? 0 }]
          .map(({ from_ms, to_ms }) => barOf(from_ms, to_ms, window).width)
          .concat(held.map(({ from_ms, to_ms }) => -barOf(from_ms, to_ms, window).width))
          .reduce((sum, each) => sum + each);
        return { work_ms, width };
      });
      for (const one of drawn)
        for (const other of drawn)
          if (one.work_ms >= other.work_ms) expect(one.width).toBeGreaterThanOrEqual(other.width - 0.001);
      // What is cut out lasted long enough.
      for (const cut of cuts) expect(cut.to_ms - cut.from_ms).toBeGreaterThanOrEqual(20 * second);
    }),
  );
});

test("a tool that takes most of a run is drawn as long as that, and a step's waiting is no work of it", () => {
  const slow = runOf([
    { idle_s: 0, took_s: 2, asks_s: 0, tells: false, isInStep: true },
    { idle_s: 0, took_s: 60, asks_s: 0, tells: false, isInStep: true },
  ]);
  expect(cutsOf(slow, { from_ms: (slow.spans.tree.root as Span).start_ms, to_ms: slow.last_at_ms })).toEqual(
    [],
  );
  const asking = runOf([{ idle_s: 30, took_s: 2, asks_s: 400, tells: false, isInStep: true }]);
  const { tree } = asking.spans;
  const from_ms = (tree.root as Span).start_ms;
  expect(cutsOf(asking, { from_ms, to_ms: asking.last_at_ms })).toEqual([
    { from_ms: from_ms + 32 * second, to_ms: from_ms + 432 * second, isWait: true },
  ]);
  const step = tree.spans.find(({ kind }) => kind === "step") as Span;
  expect(step.took_ms).toBe(17 * second);
  expect(lengthOf(asking.spans.heldIn(step, 0))).toBe(400 * second);
});

test("a step that says less than the time between its events waited for the rest", () => {
  const view = new RunView();
  const events = [
    event(1, "run.started", { ms: 0 }),
    event(2, "step.started", { ...inSpan("s"), ms: 0 }),
    event(3, "step.completed", { ...inSpan("s"), ms: 3_900, payload: { name: "tools", duration_ms: 15 } }),
  ];
  for (const each of events) view.takeRow(rowOf(each));
  const step = view.spans.tree.spans[1] as Span;
  expect(lengthOf(view.spans.heldIn(step, 0))).toBe(3_885);
});
