import type { TimelineSpan } from "@runreel/client";
import fc from "fast-check";
import { expect, test } from "vitest";
import { alignSpans, differs, type Pair } from "./align";

const span = (span_id: string, kind: string, name: string, parent_span_id?: string, duration_ms = 10) =>
  ({ span_id, kind, name, parent_span_id, duration_ms, status: "completed" }) as TimelineSpan;

const told = (a: TimelineSpan[], b: TimelineSpan[]) =>
  alignSpans(a, b).map(
    (pair) => `${"  ".repeat(pair.depth)}${pair.a?.span_id ?? "-"} ${pair.b?.span_id ?? "-"}`,
  );

test("steps of the same kind and name below the same parent are one", () => {
  const a = [
    span("ra", "run", "Trip"),
    span("1", "step", "plan", "ra"),
    span("2", "tool", "search", "1"),
    span("3", "tool", "search", "1"),
    span("4", "step", "write", "ra"),
  ];
  const b = [
    span("rb", "run", "Another trip"),
    span("p", "step", "plan", "rb"),
    span("q", "tool", "weather", "p"),
    span("r", "tool", "search", "p"),
    span("s", "tool", "search", "rb"),
    span("t", "step", "write", "rb"),
  ];
  expect(told(a, b)).toEqual(["ra rb", "  1 p", "    2 -", "    - q", "    3 r", "  - s", "  4 t"]);
});

test("a span without a name is found by its kind", () => {
  const a = [span("ra", "run", "x"), span("m1", "message", "m1", "ra")];
  const b = [span("rb", "run", "x"), span("7f", "message", "7f", "rb")];
  expect(told(a, b)).toEqual(["ra rb", "  m1 7f"]);
});

test("an id that both runs have is a name", () => {
  const a = [
    span("ra", "run", "x"),
    span("plan", "step", "plan", "ra"),
    span("write", "step", "write", "ra"),
  ];
  const b = [span("rb", "run", "x"), span("write", "step", "write", "rb")];
  expect(told(a, b)).toEqual(["ra rb", "  plan -", "  write write"]);
});

test("parents that do not exist, or come later, or are the span itself, are no parents", () => {
  const a = [
    span("ra", "run", "x"),
    span("1", "step", "s", "gone"),
    span("2", "step", "t", "2"),
    span("3", "step", "u", "4"),
    span("4", "step", "v", "3"),
  ];
  expect(told(a, [])).toEqual(["ra -", "  1 -", "  2 -", "  3 -", "    4 -"]);
});

const spans = fc
  .array(fc.tuple(fc.constantFrom("step", "tool"), fc.constantFrom("x", "y", "z"), fc.nat()), {
    maxLength: 25,
  })
  .map((all) => {
    const list = [span("root", "run", "run")];
    for (const [kind, name, parent] of all)
      list.push(span(`s${list.length}`, kind, name, list[parent % list.length]?.span_id));
    return list;
  });

test("every span stands in one pair, and those of the same run with itself are all found", () => {
  fc.assert(
    fc.property(spans, spans, (a, b) => {
      const pairs = alignSpans(a, b);
      const ids = (list: (TimelineSpan | null)[]) => list.flatMap((each) => each?.span_id ?? []).sort();
      expect(ids(pairs.map((pair) => pair.a))).toEqual(ids(a));
      expect(ids(pairs.map((pair) => pair.b))).toEqual(ids(b));
      for (const pair of pairs) if (pair.a && pair.b) expect(pair.a.kind).toBe(pair.b.kind);
      expect(alignSpans(a, a).every((pair) => pair.a === pair.b)).toBe(true);
    }),
  );
});

test("a tree may be deep", () => {
  const deep = Array.from({ length: 30_000 }, (_, n) =>
    span(`s${n}`, "step", "s", n === 0 ? undefined : `s${n - 1}`),
  );
  expect(alignSpans(deep, deep).at(-1)?.depth).toBe(deep.length - 1);
});

test("a pair differs when one is missing, ended in another way, or took half as long again", () => {
  const none = new Set<Pair>();
  const [one, slow] = [span("1", "tool", "x", undefined, 200), span("1", "tool", "x", undefined, 400)];
  expect(differs({ a: one, b: one, depth: 0 }, none)).toBe(false);
  expect(differs({ a: one, b: null, depth: 0 }, none)).toBe(true);
  expect(differs({ a: one, b: slow, depth: 0 }, none)).toBe(true);
  expect(differs({ a: one, b: { ...one, status: "failed" }, depth: 0 }, none)).toBe(true);
  const quick = (duration_ms: number) => span("1", "tool", "x", undefined, duration_ms);
  expect(differs({ a: quick(1), b: quick(9), depth: 0 }, none)).toBe(false);
  const pair = { a: one, b: one, depth: 0 } as Pair;
  expect(differs(pair, new Set([pair]))).toBe(true);
});
