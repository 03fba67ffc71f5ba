import fc from "fast-check";
import { describe, expect, test, vi } from "vitest";
import { RunView } from "../feed/fold";
import { event, tell, told } from "../feed/testing";
import { pillOf } from "./connection";
import { detached, following, newRows, step } from "./follow";
import type { SpanTree } from "../feed/tree";
import { EventFilter } from "./filter";
import { all, SpanRows, type Shown } from "./rows";
import { rowHeight_px, rowsInView, topToShow } from "./window";

describe("following the end of a list", () => {
  test("only the reader's own scroll upwards detaches", () => {
    expect(step(following, { kind: "scrolled", at_end: false, away: false }, 10)).toBe(following);
    expect(step(following, { kind: "scrolled", at_end: false, away: true }, 10)).toEqual(detached(10));
  });

  test("opening a row detaches, so that it stays under the eye", () => {
    expect(step(following, { kind: "opened" }, 7)).toEqual(detached(7));
  });

  test("scrolling to the end, or asking for it, follows again", () => {
    expect(step(detached(3), { kind: "scrolled", at_end: true, away: false }, 9)).toBe(following);
    expect(step(detached(3), { kind: "asked_for_end" }, 9)).toBe(following);
  });

  test("what came while detached is counted as new", () => {
    expect(newRows(detached(10), 322)).toBe(312);
    expect(newRows(following, 322)).toBe(0);
  });
});

describe("the drawn part of a list", () => {
  test("holds every visible row and never more than a bound", () => {
    fc.assert(
      fc.property(
        fc.nat(200_000),
        fc.nat(100_000),
        fc.integer({ min: 0, max: 1500 }),
        (count, first, height) => {
          const top = Math.min(first, count) * rowHeight_px;
          const { start, end } = rowsInView(top, height, count);
          expect(end - start).toBeLessThanOrEqual(90);
          expect(start).toBeLessThanOrEqual(Math.min(first, count));
          expect(end).toBeGreaterThanOrEqual(Math.min(count, Math.floor((top + height) / rowHeight_px)));
        },
      ),
    );
  });

  test("scrolls as little as shows a row below the header", () => {
    expect(topToShow(2, 0, 280)).toBe(0);
    expect(topToShow(20, 0, 280)).toBe(22 * 28 - 280);
    expect(topToShow(3, 280, 280)).toBe(84);
  });
});

function viewOf(...events: Parameters<typeof event>[]): RunView {
  const view = new RunView();
  for (const each of events) tell(view, told(event(...each)));
  return view;
}

function spanRows(tree: SpanTree, closed: ReadonlySet<number>, query: string, over: Partial<Shown> = {}) {
  const rows = new SpanRows();
  rows.update(tree, { ...all, closed, query, ...over });
  return drawn(rows);
}

const drawn = (rows: SpanRows) =>
  Array.from({ length: rows.length }, (_, index) => rows.at(index)).flatMap((row) => row ?? []);

describe("rows", () => {
  test("a filter finds words in payloads too, and leaves families out", () => {
    const view = viewOf(
      [1, "tool.started", { span_id: "t1", payload: { name: "fetch", args: { Page: "Seven" } } }],
      [2, "log.info", { payload: { message: "page seven" } }],
    );
    const filter = new EventFilter();
    const bodyOf = (seq: number) => view.bodies.get(seq);
    expect(filter.update(view.rows, "seven", all.hidden, bodyOf)).toEqual([0, 1]);
    expect(filter.update(view.rows, "seven", new Set(["log"]), bodyOf)).toEqual([0]);
    expect(filter.update(view.rows, "eight", all.hidden, bodyOf)).toEqual([]);
  });

  test("kinds that are left out leave what is below them", () => {
    expect(
      spanRows(nested(), new Set(), "", { hidden: new Set(["step"]) }).map((row) => [
        row.span.name,
        row.depth,
      ]),
    ).toEqual([
      ["run", 0],
      ["search", 1],
    ]);
  });

  test("rows that grow with the run are those of the whole run, whatever the order", () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.nat(12), fc.boolean()), { maxLength: 40 }), (spans) => {
        const view = new RunView();
        const grown = new SpanRows();
        tell(view, told(event(1, "run.created")));
        spans.forEach(([parent, isStep], at) => {
          const over = { span_id: `s${at}`, parent_span_id: `s${parent}` };
          tell(view, told(event(at + 2, isStep ? "step.started" : "tool.started", over)));
          if (at % 3 === 0) grown.update(view.spans.tree, all);
        });
        grown.update(view.spans.tree, all);
        expect(drawn(grown)).toEqual(spanRows(view.spans.tree, all.closed, ""));
      }),
    );
  });

  test("a span that is added to a long run costs what it costs in a short one", () => {
    const view = new RunView();
    tell(view, told(event(1, "run.created")));
    const add = (seq: number) => tell(view, told(event(seq, "tool.started", { span_id: `t${seq}` })));
    for (let seq = 2; seq < 5_000; seq += 1) add(seq);
    const { tree } = view.spans;
    const rows = new SpanRows();
    rows.update(tree, all);
    const looks = vi.spyOn(tree, "parentOf");
    const lists = vi.spyOn(tree, "childrenOf");
    add(5_000);
    looks.mockClear();
    rows.update(tree, all);
    expect(rows.length).toBe(5_000);
    expect(looks.mock.calls.length + lists.mock.calls.length).toBeLessThan(10);
  });

  test("a filter finds words in type, title and span, and looks only at new rows", () => {
    const view = viewOf(
      [1, "tool.started", { span_id: "t1", payload: { name: "Search web" } }],
      [2, "log.info"],
    );
    const filter = new EventFilter();
    expect(filter.update(view.rows, "")).toBeNull();
    expect(filter.update(view.rows, "search TOOL")).toEqual([0]);
    tell(view, told(event(3, "tool.completed", { span_id: "t1", payload: { name: "Search web" } })));
    expect(filter.update(view.rows, "search TOOL")).toEqual([0, 2]);
    expect(filter.update(view.rows, "t1 started")).toEqual([0]);
  });

  const nested = () =>
    viewOf(
      [1, "run.created"],
      [2, "step.started", { span_id: "s1", payload: { name: "plan" } }],
      [3, "tool.started", { span_id: "t1", parent_span_id: "s1", payload: { name: "search" } }],
      [4, "step.started", { span_id: "s2", payload: { name: "answer" } }],
    ).spans.tree;

  test("the tree is shown parents first, with its depth", () => {
    const rows = spanRows(nested(), new Set(), "");
    expect(rows.map((row) => [row.span.name, row.depth, row.position, row.siblings])).toEqual([
      ["run", 0, 1, 1],
      ["plan", 1, 1, 2],
      ["search", 2, 1, 1],
      ["answer", 1, 2, 2],
    ]);
  });

  test("a closed span hides what is below it", () => {
    const tree = nested();
    expect(spanRows(tree, new Set([1]), "").map((row) => row.span.name)).toEqual(["run", "plan", "answer"]);
  });

  test("a search keeps matches and their parents, also below closed spans", () => {
    expect(spanRows(nested(), new Set([0, 1]), "sear").map((row) => row.span.name)).toEqual([
      "run",
      "plan",
      "search",
    ]);
  });

  test("a chain of ten thousand spans does not exhaust the stack", () => {
    const view = new RunView();
    tell(view, told(event(1, "run.created")));
    for (let seq = 2; seq < 10_000; seq += 1) {
      tell(view, told(event(seq, "step.started", { span_id: `s${seq}`, parent_span_id: `s${seq - 1}` })));
    }
    expect(spanRows(view.spans.tree, new Set(), "")).toHaveLength(9_999);
  });
});

describe("the connection pill", () => {
  const facts = { now_ms: 1000, isOnline: true, progress: null };

  test("counts down to the next attempt", () => {
    const pill = pillOf(
      { state: "reconnecting", retryAt: 3400, attempt: 2, error: undefined, gap: null },
      facts,
    );
    expect(pill).toMatchObject({ word: "Reconnecting", text: "Reconnecting in 3 s", canRetry: true });
  });

  test("says offline when the browser knows it", () => {
    const offline = { ...facts, isOnline: false };
    expect(
      pillOf({ state: "reconnecting", retryAt: 0, attempt: 1, error: undefined, gap: null }, offline).word,
    ).toBe("Offline");
  });

  test("tells how far a replay is", () => {
    expect(pillOf({ state: "catching-up", gap: null }, { ...facts, progress: 0.689 }).text).toBe(
      "Catching up 68 %",
    );
  });
});
