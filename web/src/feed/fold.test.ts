import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Bodies } from "./bodies";
import { RunView } from "./fold";
import { titleOf } from "./read";
import { runAfter } from "./runs.svelte";
import type { Run } from "@runreel/client";
import { event, run_id, told } from "./testing";

describe("the view of a run", () => {
  test("status, counts and times follow from the events alone", () => {
    const view = new RunView();
    view.take(told(event(1, "run.created")));
    expect(view.status).toBe("queued");
    view.take(told(event(2, "run.started")));
    view.take(told(event(3, "tool.started", { span_id: "t1" })));
    view.take(told(event(4, "tool.failed", { span_id: "t1", payload: { error: { message: "no" } } })));
    view.take(told(event(5, "message.completed", { payload: { text: "sorry" } })));
    view.take(told(event(6, "run.completed")));
    expect(view).toMatchObject({ status: "completed", tools: 1, messages: 1, errors: 1, last_seq: 6 });
    expect((view.ended_ms ?? 0) - (view.started_ms ?? 0)).toBe(40);
    expect(view.rows[3]).toMatchObject({ type: "tool.failed", title: "no", tone: "error" });
  });

  test("a gap is kept to be shown", () => {
    const view = new RunView();
    view.take(told({ type: "stream.gap", requested_after: 0, first_seq: 40 }));
    view.take(told(event(40, "log.info")));
    expect(view.gaps).toMatchObject([{ requested_after: 0, first_seq: 40 }]);
    expect(view.indexOf(40)).toBe(0);
  });

  test("the end of the stream closes texts that their producer abandoned", () => {
    const view = new RunView();
    view.take(
      told({
        type: "message.snapshot",
        delta_type: "message.delta",
        run_id,
        span_id: "m1",
        text: "half",
        offset: 4,
      }),
    );
    view.take(told({ type: "stream.end", status: "failed", last_seq: 3 }));
    expect(view.texts.open.size).toBe(0);
  });

  test("a row is found by its seq, also after a gap", () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.integer({ min: 1, max: 500 }), { minLength: 1 }), (seqs) => {
        const sorted = [...seqs].sort((a, b) => a - b);
        const view = new RunView();
        for (const seq of sorted) view.take(told(event(seq, "log.info")));
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
    expect(titleOf("log.info", { message: `a\n\n${"b".repeat(500)}` })).toBe(`a ${"b".repeat(117)}`);
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

describe("a run's row in the list", () => {
  const run = { run_id, status: "running", last_seq: 4, started_at: null, ended_at: null } as unknown as Run;

  test("moves with each newer event", () => {
    expect(runAfter(run, event(5, "run.completed"))).toMatchObject({ status: "completed", last_seq: 5 });
  });

  test("reads a member that was left out as one that is null", () => {
    const { started_at: _, ended_at: __, ...bare } = run;
    expect(runAfter(bare, event(5, "log.info"))).toMatchObject({ started_at: null, ended_at: null });
  });

  test("ignores what it already knows", () => {
    expect(runAfter(run, event(4, "run.failed"))).toBeNull();
  });
});
