import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { RunView } from "../feed/fold";
import type { EventRow } from "../feed/row";
import { event, tell, told } from "../feed/testing";
import { FoldedRows } from "./foldevents";
import { foldBrief } from "./foldspans";
import { all, SpanRows } from "./rows";
import type { SpanTree } from "../feed/tree";

describe("the log, folded", () => {
  const rowsOf = (types: readonly string[]): EventRow[] => {
    const view = new RunView();
    types.forEach((type, at) => tell(view, told(event(at + 1, type))));
    return view.rows;
  };
  const none: ReadonlySet<number> = new Set();
  const entries = (folded: FoldedRows) =>
    Array.from({ length: folded.length }, (_, index) => folded.at(index)).map(({ at, count, isOpen }) =>
      count > 0 ? `${at}×${count}${isOpen ? " open" : ""}` : at,
    );

  test("stretches of minor events are one entry, and warnings and errors are none of them", () => {
    const rows = rowsOf([
      "run.created",
      "log.info",
      "step.started",
      "log.debug",
      "tool.started",
      "log.info",
      "log.warn",
      "log.info",
      "step.failed",
      "cache.hit",
      "cache.hit",
    ]);
    const folded = new FoldedRows();
    folded.update(rows, null, none);
    expect(entries(folded)).toEqual([0, "1×3", 4, 5, 6, 7, 8, "9×2"]);
    expect(folded.indexOf(2)).toBe(1);
    folded.update(rows, null, new Set([2]));
    expect(entries(folded)).toEqual([0, "1×3 open", 1, 2, 3, 4, 5, 6, 7, 8, "9×2"]);
    // An event of an open stretch has its own row.
    expect(folded.indexOf(1)).toBe(2);
  });

  test("a stretch stands for what is shown of it, and not for what is hidden in between", () => {
    const rows = rowsOf(["run.created", "log.info", "cache.hit", "log.info", "cache.hit", "step.started"]);
    const folded = new FoldedRows();
    folded.update(rows, [0, 1, 3, 5], none);
    expect(entries(folded)).toEqual([0, "1×3"]);
    expect([0, 1, 2, 3, 4, 5].map((at) => folded.indexOf(at))).toEqual([0, 1, -1, 1, -1, 1]);
    const types = (most: number) => folded.rowsOf(folded.at(1), most).map(({ type }) => type);
    expect(types(9)).toEqual(["log.info", "log.info", "step.started"]);
    expect(types(2)).toEqual(["log.info", "log.info"]);
    folded.update(rows, [0, 1, 3, 5], new Set([2]));
    expect([0, 1, 2, 3, 4, 5].map((at) => folded.indexOf(at))).toEqual([0, 2, -1, 3, -1, 4]);
  });

  test("entries that grow with the log are those of the whole log", () => {
    const types = fc.array(fc.constantFrom("log.info", "tool.started", "log.warn", "step.started"), {
      maxLength: 60,
    });
    fc.assert(
      fc.property(types, fc.integer({ min: 1, max: 10 }), fc.nat(60), (types, step, seq) => {
        const rows = rowsOf(types);
        const grown = new FoldedRows();
        const whole = new FoldedRows();
        const opened = new Set([seq]);
        const some: EventRow[] = [];
        for (let at = 0; at < rows.length; at += step) {
          some.push(...rows.slice(at, at + step));
          grown.update(some, null, opened);
        }
        whole.update(rows, null, opened);
        expect(entries(grown)).toEqual(entries(whole));
      }),
    );
  });
});

describe("the waterfall, folded", () => {
  /** A run of ten seconds with one long call among brief ones. */
  function tree(): SpanTree {
    const view = new RunView();
    let seq = 0;
    const add = (ms: number, type: string, span_id = "") => {
      seq += 1;
      tell(view, told(event(seq, type, { ms, span_id, payload: { name: span_id || "all" } })));
    };
    const call = (span_id: string, from: number, took: number, verb = "completed") => {
      add(from, "tool.started", span_id);
      add(from + took, `tool.${verb}`, span_id);
    };
    add(0, "run.started");
    call("a", 100, 10);
    call("b", 200, 20);
    call("long", 300, 5_000);
    call("c", 6_000, 10);
    call("d", 6_100, 10);
    call("bad", 6_200, 10, "failed");
    call("e", 6_300, 10);
    add(10_000, "run.completed");
    return view.spans.tree;
  }
  const names = (rows: SpanRows) => Array.from({ length: rows.length }, (_, at) => rows.at(at)?.span.name);

  test("stretches of what was brief and went well are one row, with what they took", () => {
    const rows = new SpanRows();
    rows.update(tree(), { ...all, fold: foldBrief });
    expect(names(rows)).toEqual(["all", "2 folded", "long", "2 folded", "bad", "e"]);
    expect(rows.at(1)).toMatchObject({ hasChildren: true, isOpen: false, depth: 1 });
    expect(rows.at(1)?.span).toMatchObject({ preview: "a, b", took_ms: 30, kind: "", error: "" });
    expect(rows.indexOf(2)).toBe(1);
  });

  test("one that is opened stands above its spans, each of which has its own row", () => {
    const rows = new SpanRows();
    const spans = tree();
    rows.update(spans, { ...all, fold: foldBrief });
    const closed = new Set([rows.at(1)?.span.index ?? 0]);
    rows.update(spans, { ...all, fold: foldBrief, closed });
    expect(names(rows)).toEqual(["all", "2 folded", "a", "b", "long", "2 folded", "bad", "e"]);
    expect(rows.at(2)).toMatchObject({ depth: 2, hasChildren: false });
    expect(rows.indexOf(2)).toBe(2);
  });

  test("a search finds what was folded", () => {
    const rows = new SpanRows();
    rows.update(tree(), { ...all, fold: foldBrief, query: "tool e" });
    expect(names(rows)).toContain("e");
    expect(names(rows)).not.toContain("2 folded");
    const hits = Array.from({ length: rows.length }, (_, at) => rows.isHit(at));
    expect(hits[0]).toBe(false);
    expect(hits.slice(1)).not.toContain(false);
  });
});
