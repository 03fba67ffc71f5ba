import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { RunEvent } from "@runreel/client";
import { atMs } from "./read";
import { rowOf } from "./eventrow";
import { Spans } from "./spans";
import { atAfter, event, inSpan } from "./testing";

function fold(events: RunEvent[]): Spans {
  const spans = new Spans();
  for (const each of events) spans.take(rowOf(each));
  return spans;
}

describe("spans from events", () => {
  test("a start and an end of one span are one bar", () => {
    const { tree } = fold([
      event(1, "run.created", { payload: { title: "Trip" } }),
      event(2, "run.started", { ms: 20 }),
      event(3, "tool.started", { ...inSpan("t1"), ms: 30, payload: { name: "search" } }),
      event(4, "tool.completed", { ...inSpan("t1"), ms: 75.5 }),
    ]);
    expect(tree.spans.map((each) => [each.kind, each.name, each.status])).toEqual([
      ["run", "Trip", "running"],
      ["tool", "search", "completed"],
    ]);
    expect((tree.spans[1]?.end_ms ?? 0) - (tree.spans[1]?.start_ms ?? 0)).toBeCloseTo(45.5, 3);
  });

  test("the run's bar begins when the run starts and ends with its last event", () => {
    const { tree } = fold([
      event(1, "run.created", { ms: 0 }),
      event(2, "run.started", { ms: 100 }),
      event(3, "run.failed", { ms: 300 }),
    ]);
    expect(tree.root).toMatchObject({ span_id: "", status: "failed", end_seq: 3, start_seq: 1 });
    expect((tree.root?.end_ms ?? 0) - (tree.root?.start_ms ?? 0)).toBe(200);
  });

  test("an end without a start is as long as it says", () => {
    const { tree } = fold([
      event(1, "run.created", { ms: 0 }),
      event(2, "message.completed", { ...inSpan("m1"), ms: 900, payload: { duration_ms: 400 } }),
    ]);
    expect(tree.spans[1]).toMatchObject({ start_ms: atMs(atAfter(500)), end_ms: atMs(atAfter(900)) });
  });

  test("a message that names its step's span does not end the step", () => {
    const { tree } = fold([
      event(1, "run.created"),
      event(2, "step.started", inSpan("s1")),
      event(3, "message.completed", inSpan("s1")),
    ]);
    expect(tree.spans.map((each) => [each.kind, each.status])).toEqual([
      ["run", "running"],
      ["step", "running"],
      ["message", "completed"],
    ]);
  });

  test("parents nest, and a child that came before its parent moves below it", () => {
    const { tree } = fold([
      event(1, "run.created"),
      event(2, "tool.started", inSpan("t1", "s1")),
      event(3, "step.started", inSpan("s1")),
      event(4, "tool.started", inSpan("t2", "s1")),
    ]);
    const root = tree.root;
    if (root === null) throw new Error("no root");
    expect(tree.childrenOf(root).map((each) => each.span_id)).toEqual(["s1"]);
    const step = tree.childrenOf(root)[0];
    expect(step && tree.childrenOf(step).map((each) => each.span_id)).toEqual(["t1", "t2"]);
  });

  test("a span whose parent is unknown hangs below the run", () => {
    const { tree } = fold([event(1, "run.created"), event(2, "tool.started", inSpan("t1", "nowhere"))]);
    expect(tree.root && tree.childrenOf(tree.root)).toHaveLength(1);
  });

  test("a span that is its own parent hangs below the run", () => {
    const { tree } = fold([event(1, "run.created"), event(2, "tool.started", inSpan("t1", "t1"))]);
    expect(tree.root && tree.childrenOf(tree.root)).toHaveLength(1);
  });

  test("waiting is kept as a stretch of the run, and ends with the run at the latest", () => {
    const { pauses } = fold([
      event(1, "run.created", { ms: 0 }),
      event(2, "run.waiting", { ms: 10 }),
      event(3, "run.resumed", { ms: 30 }),
      event(4, "run.interrupted", { ms: 50 }),
      event(5, "run.cancelled", { ms: 70 }),
    ]);
    expect(pauses.map((pause) => (pause.to_ms ?? 0) - pause.from_ms)).toEqual([20, 20]);
  });

  test("an event without agent, span and parent still has its bar", () => {
    const { agent: _, ...bare } = event(2, "tool.started");
    const { tree } = fold([event(1, "run.created"), bare]);
    expect(tree.spans[1]).toMatchObject({ span_id: "seq-2", parent_span_id: null });
  });

  test("a span took what its end says, and a person's time is nobody's", () => {
    const spans = fold([
      event(1, "run.created", { ms: 0 }),
      event(2, "run.started", { ms: 0 }),
      event(3, "tool.started", { ...inSpan("t"), ms: 10 }),
      event(4, "tool.started", { ...inSpan("u"), ms: 20 }),
      event(5, "run.interrupted", { ms: 100 }),
      event(6, "run.resumed", { ms: 5_100 }),
      event(7, "tool.completed", { ...inSpan("t"), ms: 5_110 }),
      event(8, "tool.completed", { ...inSpan("u"), ms: 5_120, payload: { duration_ms: 7.5 } }),
    ]);
    expect(spans.tree.spans.slice(1).map((span) => span.took_ms)).toEqual([100, 7.5]);
    const [bar] = spans.tree.spans.slice(1);
    expect((bar?.end_ms ?? 0) - (bar?.start_ms ?? 0)).toBe(5_100);
  });

  test("a run that is told of late begins with the first thing that happened in it", () => {
    const spans = fold([
      event(1, "run.created", { ms: 9_000 }),
      event(2, "run.started", { ms: 9_000 }),
      event(3, "step.started", { ...inSpan("s"), ms: 0 }),
      event(4, "step.completed", { ...inSpan("s"), ms: 400 }),
      event(5, "run.completed", { ms: 500 }),
    ]);
    const root = spans.tree.root;
    expect(
      [root?.start_ms, root?.end_ms].map((ms) => (ms ?? 0) - (spans.tree.spans[1]?.start_ms ?? 0)),
    ).toEqual([0, 500]);
  });

  test("a worker's bar knows its run", () => {
    const { tree } = fold([
      event(1, "run.created"),
      event(2, "worker.spawned", { ...inSpan("w1"), payload: { run_id: "child" } }),
      event(3, "worker.completed", { ...inSpan("w1"), payload: { run_id: "child" } }),
    ]);
    expect(tree.spans[1]).toMatchObject({ kind: "worker", child_run_id: "child", status: "completed" });
  });

  test("a worker's bar is as long as the worker took, whenever its end is told", () => {
    const { tree } = fold([
      event(1, "run.created", { ms: 0 }),
      event(2, "worker.spawned", { ...inSpan("w1"), ms: 10 }),
      event(3, "worker.spawned", { ...inSpan("w2"), ms: 20 }),
      event(4, "worker.completed", { ...inSpan("w1"), ms: 100, payload: { duration_ms: 40 } }),
      event(5, "worker.failed", { ...inSpan("w2"), ms: 100, payload: { duration_ms: 500 } }),
    ]);
    expect(tree.spans.slice(1).map((span) => (span.end_ms ?? 0) - span.start_ms)).toEqual([40, 80]);
  });

  test("arguments and errors are those that the titles tell", () => {
    const { tree } = fold([
      event(1, "run.created"),
      event(2, "tool.started", { ...inSpan("t1"), payload: { name: "search", args: { q: "x (y)" } } }),
      event(3, "tool.failed", { ...inSpan("t1"), payload: { name: "search", error: { message: "429" } } }),
    ]);
    expect(tree.spans[1]).toMatchObject({ preview: 'q: "x (y)"', error: "429" });
  });
});

test("a span that begins while a person is asked is at work from its beginning on", () => {
  const spans = fold([
    event(1, "run.created"),
    event(2, "run.interrupted", { ms: 1_000 }),
    event(3, "tool.started", { ...inSpan("t1"), ms: 51_000, payload: { name: "search" } }),
    event(4, "run.resumed", { ms: 61_000 }),
    event(5, "tool.completed", { ...inSpan("t1"), ms: 71_000 }),
  ]);
  const span = spans.tree.spans[1] as (typeof spans.tree.spans)[number];
  expect(span.took_ms).toBe(10_000);
  expect(spans.heldIn(span, 71_000).map(({ from_ms, to_ms }) => to_ms - from_ms)).toEqual([10_000]);
});

test("every span has one row, whatever spans name as their parents", () => {
  const shown = (spans: Spans): string[] => {
    const found: string[] = [];
    const todo = [...spans.tree.roots()];
    for (let span = todo.pop(); span !== undefined; span = todo.pop()) {
      found.push(span.span_id);
      expect(found.length).toBeLessThanOrEqual(spans.tree.spans.length);
      todo.push(...spans.tree.childrenOf(span));
    }
    return found.sort();
  };
  const circle = fold([
    event(1, "run.created"),
    event(2, "step.started", inSpan("a", "c")),
    event(3, "step.started", inSpan("b", "a")),
    event(4, "step.started", inSpan("c", "b")),
    event(5, "step.started", inSpan("d", "c")),
  ]);
  expect(shown(circle)).toEqual(["", "a", "b", "c", "d"]);
  // The link that closes the cycle is dropped; the rest is a chain.
  const [, a, b, c] = circle.tree.spans;
  expect([a, b, c].map((span) => span && circle.tree.parentOf(span)?.span_id)).toEqual(["", "a", "b"]);

  const id = fc.constantFrom("a", "b", "c", "d", "e", "f");
  fc.assert(
    fc.property(fc.array(fc.tuple(id, id), { maxLength: 12 }), fc.boolean(), (links, hasRoot) => {
      const steps = links.map(([own, parent], at) => event(at + 2, "step.started", inSpan(own, parent)));
      const spans = fold(hasRoot ? [event(1, "run.created"), ...steps] : steps);
      expect(shown(spans)).toEqual(spans.tree.spans.map(({ span_id }) => span_id).sort());
    }),
  );
});
