import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Bodies } from "./bodies";
import { RunView } from "./fold";
import { lull_ms, Past, playedTo } from "./past";
import { rowsOf, type IndexPage } from "./row";
import { rowOf } from "./eventrow";
import { event, run_id, tell, told } from "./testing";
import { titleOf } from "./title";

describe("the view of a run", () => {
  test("status, counts and times follow from the events alone", () => {
    const view = new RunView();
    tell(view, told(event(1, "run.created")));
    expect(view.status).toBe("queued");
    tell(view, told(event(2, "run.started")));
    tell(view, told(event(3, "tool.started", { span_id: "t1" })));
    tell(view, told(event(4, "tool.failed", { span_id: "t1", payload: { error: { message: "no" } } })));
    tell(view, told(event(5, "message.completed", { payload: { text: "sorry" } })));
    tell(view, told(event(6, "run.completed")));
    expect(view).toMatchObject({ status: "completed", tools: 1, messages: 1, errors: 1, last_seq: 6 });
    expect((view.ended_ms ?? 0) - (view.started_ms ?? 0)).toBe(40);
    expect(view.rows[3]).toMatchObject({ type: "tool.failed", title: "error: no", level: "error" });
  });

  test("a gap is kept to be shown", () => {
    const view = new RunView();
    tell(view, told({ type: "stream.gap", requested_after: 0, first_seq: 40 }));
    tell(view, told(event(40, "log.info")));
    expect(view.gaps).toMatchObject([{ requested_after: 0, first_seq: 40 }]);
    expect(view.indexOf(40)).toBe(0);
  });

  test("the end of the stream closes texts that their producer abandoned", () => {
    const view = new RunView();
    tell(
      view,
      told({
        type: "message.snapshot",
        delta_type: "message.delta",
        run_id,
        span_id: "m1",
        text: "half",
        offset: 4,
      }),
    );
    tell(view, told({ type: "stream.end", status: "failed", last_seq: 3 }));
    expect(view.texts.open.size).toBe(0);
  });

  test("a row is found by its seq, also after a gap", () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.integer({ min: 1, max: 500 }), { minLength: 1 }), (seqs) => {
        const sorted = [...seqs].sort((a, b) => a - b);
        const view = new RunView();
        for (const seq of sorted) tell(view, told(event(seq, "log.info")));
        for (const seq of sorted) expect(view.rows[view.indexOf(seq)]?.seq).toBe(seq);
      }),
    );
  });

  test("a row's title is one short line whatever the payload holds", () => {
    fc.assert(
      fc.property(
        fc.jsonValue(),
        fc.constantFrom("log.info", "message.completed", "custom.x"),
        (payload, type) => {
          const title = titleOf(type, payload);
          expect(title.length).toBeLessThanOrEqual(120);
        },
      ),
    );
    expect(titleOf("log.info", { text: "said" })).toBe("said");
    expect(titleOf("log.info", { message: `a\n\n${"b".repeat(500)}` })).toBe(`a  ${"b".repeat(116)}…`);
  });

  test("a title is what the server's index says of the same payload", () => {
    const told: [string, unknown, string][] = [
      ["tool.started", { name: "search", args: { q: "x", limit: 3 } }, 'search(q: "x", limit: 3)'],
      ["tool.failed", { name: "search", error: { message: "gone", trace: "…" } }, "search error: gone"],
      ["tool.completed", { name: "search", duration_ms: 3, result: [1, 2] }, "search → [1,2]"],
      ["message.completed", { role: "user", content: [{ type: "text", text: "Hi" }] }, "user: Hi"],
      ["message.completed", { role: "assistant", text: "Hello" }, "Hello"],
      ["worker.spawned", { run_id: "r1", agent: "coder" }, "coder run r1"],
      ["custom.x", { $artifact: { size: 90_000 }, preview: "first" }, "first"],
      ["custom.x", { a: 1 }, '{"a":1}'],
      ["interrupt.requested", { prompt: "Sure?" }, "Sure?"],
      ["run.started", {}, ""],
    ];
    for (const [type, payload, title] of told) expect(titleOf(type, payload)).toBe(title);
  });

  test("the end of a run that was shown first becomes part of the whole run", () => {
    const events = [
      event(1, "run.created"),
      event(2, "run.started"),
      event(3, "step.started", { span_id: "s", payload: { name: "plan" } }),
      event(4, "message.completed", { span_id: "m1", payload: { role: "user", text: "Go" } }),
      event(5, "interrupt.requested", { span_id: "i", payload: { prompt: "Sure?" } }),
      event(6, "step.completed", { span_id: "s" }),
      event(7, "message.completed", { span_id: "m2", payload: { text: "Done" } }),
    ];
    const whole = new RunView();
    for (const each of events) tell(whole, told(each));
    for (const cut of [1, 3, 5]) {
      const [begin, end] = [new RunView(), new RunView()];
      for (const each of events.slice(0, cut)) begin.takeRow(rowOf(each));
      for (const each of events.slice(cut, 5)) end.takeRow(rowOf(each));
      for (const each of events.slice(Math.max(5, cut))) tell(end, told(each));
      begin.join(end);
      expect(begin.rows).toEqual(whole.rows);
      expect(begin.spans.tree.spans).toEqual(whole.spans.tree.spans);
      expect(begin.texts.done.map(({ seq, text }) => [seq, text])).toEqual([
        [4, "Go"],
        [7, "Done"],
      ]);
      expect([...begin.interrupts.open.keys()]).toEqual(["i"]);
    }
  });

  test("a page of the index has the rows of its events", () => {
    const page: IndexPage = {
      run_id,
      first_seq: 41,
      last_seq: 42,
      next_before: 41,
      last_id: "42",
      began_at: "2026-11-21T23:37:28.308737Z",
      at_ms: [0, 120.5],
      type: ["tool.started", "tool.failed"],
      level: ["info", "error"],
      span_id: ["c", "c"],
      parent_span_id: ["s", null],
      name: ["search", null],
      title: ['search(q: "x")', "search error: timeout"],
      size: [38, 51],
      duration_ms: [null, 949.2],
      child_run_id: [null, null],
    };
    expect(rowsOf(page).map(({ seq, type, level, duration_ms }) => [seq, type, level, duration_ms])).toEqual([
      [41, "tool.started", "info", null],
      [42, "tool.failed", "error", 949.2],
    ]);
  });

  test("a run that fails without a word has the error of what failed before, and its last answer", () => {
    const view = new RunView();
    tell(view, told(event(1, "message.completed", { payload: { role: "assistant", text: "on it" } })));
    tell(view, told(event(2, "message.completed", { payload: { role: "user", text: "thanks" } })));
    tell(view, told(event(3, "tool.failed", { span_id: "t", payload: { error: { message: "429" } } })));
    tell(view, told(event(4, "run.failed")));
    expect([view.answer?.seq, view.error?.seq]).toEqual([1, 3]);
  });
});

describe("the past of a run", () => {
  const rows = (count: number) =>
    Array.from({ length: count }, (_, at) =>
      rowOf(event(at + 1, at % 3 ? "log.info" : "tool.started", { span_id: `t${at}`, ms: at * 1000 })),
    );

  test("is the same fold over fewer rows, whichever way one comes to it", () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 30 }), { maxLength: 12 }), (visited) => {
        const now = new RunView();
        for (const row of rows(30)) now.takeRow(row);
        const past = new Past(now);
        for (const seq of visited) {
          const plain = new RunView();
          for (const row of rows(seq)) plain.takeRow(row);
          const view = past.at(seq);
          expect([view.rows, view.spans.tree.spans, view.last_seq]).toEqual([
            plain.rows,
            plain.spans.tree.spans,
            plain.last_seq,
          ]);
        }
        expect(now.rows).toHaveLength(30);
      }),
    );
  });

  test("is played as it went, and where nothing happened for long it is cut short", () => {
    const told = [0, 100, 200, 3_600_000, 3_600_100].map((ms, at) =>
      rowOf(event(at + 1, "log.info", { ms })),
    );
    expect(playedTo(told, 0, 150)).toEqual({ index: 1, left_ms: 50 });
    expect(playedTo(told, 2, lull_ms)).toEqual({ index: 3, left_ms: 0 });
    expect(playedTo(told, 0, 1e9).index).toBe(4);
  });
});

describe("kept bodies", () => {
  test("the oldest are forgotten first and the bound holds", () => {
    const bodies = new Bodies(10, 6);
    bodies.put(1, "aaaa");
    bodies.put(2, "bbbb");
    bodies.put(3, "cccc");
    bodies.put(4, "too long");
    expect([1, 2, 3, 4].map((seq) => bodies.get(seq))).toEqual([null, "bbbb", "cccc", null]);
  });
});
