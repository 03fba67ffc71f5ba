import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { RunView } from "./fold";
import { Interrupts } from "./interrupts";
import { event, told } from "./testing";

const requested = (seq: number, span_id: string, payload: unknown = {}) =>
  event(seq, "interrupt.requested", { span_id, payload });
const resolved = (seq: number, span_id: string, decision = "approve") =>
  event(seq, "interrupt.resolved", { span_id, payload: { interrupt_id: span_id, decision, value: null } });

function after(...events: ReturnType<typeof event>[]): Interrupts {
  const interrupts = new Interrupts();
  for (const each of events) interrupts.take(each);
  return interrupts;
}
const openAfter = (...events: ReturnType<typeof event>[]) => [...after(...events).open.keys()];

describe("open interrupts", () => {
  test("are those requested and not resolved, in the order they were asked", () => {
    expect(openAfter(requested(1, "b"), requested(2, "a"), resolved(3, "b"), requested(4, "c"))).toEqual([
      "a",
      "c",
    ]);
  });

  test("end with the run, and with each decision of the server's own", () => {
    for (const type of ["run.completed", "run.failed", "run.cancelled"]) {
      expect(openAfter(requested(1, "a"), event(2, type))).toEqual([]);
    }
    expect(openAfter(requested(1, "a"), event(2, "run.interrupted"), event(3, "run.resumed"))).toEqual(["a"]);
    for (const decision of ["expired", "cancelled"]) {
      const interrupts = after(requested(1, "a"), resolved(2, "a", decision));
      expect([...interrupts.closed]).toEqual([["a", decision]]);
    }
  });

  test("the first request of a span stands, and a resolved one never opens again", () => {
    const twice = after(requested(1, "a", { prompt: "first" }), requested(2, "a", { prompt: "second" }));
    expect(twice.open.get("a")).toMatchObject({ seq: 1, prompt: "first" });
    expect(openAfter(requested(1, "a"), resolved(2, "a"), requested(3, "a"))).toEqual([]);
  });

  test("what has no span cannot be answered, and other families are not asked for", () => {
    expect(openAfter(event(1, "interrupt.requested"), event(2, "tool.started", { span_id: "t" }))).toEqual(
      [],
    );
  });

  test("the view shows them once the log has been read to its end, not while it is replayed", () => {
    const view = new RunView();
    view.take(told(requested(1, "a")));
    expect(view.caughtUp).toBe(false);
    view.take({ kind: "caught_up", last_seq: 1, cursor: null });
    expect(view.caughtUp).toBe(true);
    expect([...view.interrupts.open.keys()]).toEqual(["a"]);
  });
});

describe("what an interrupt asks", () => {
  const asked = (payload: unknown) => after(requested(1, "a", payload)).open.get("a");

  test("its members by their names; ids of checkpoints are for machines", () => {
    const payload = {
      kind: "approval",
      prompt: "Send it?",
      expires_at: "2025-04-01T12:00:00Z",
      checkpoint_id: "1f0c",
      ns: "",
      details: { to: "all" },
    };
    expect(asked(payload)).toEqual({
      interrupt_id: "a",
      seq: 1,
      kind: "approval",
      prompt: "Send it?",
      expires_ms: Date.parse("2025-04-01T12:00:00Z"),
      details: [["details", { to: "all" }]],
    });
  });

  test("without a prompt the payload says it in short, and once", () => {
    expect(asked({ message: "delete it?" })?.prompt).toBe("delete it?");
    expect(asked({ prompt: "Sure?" })?.details).toEqual([]);
    expect(asked("Really?")?.prompt).toBe("Really?");
    expect(asked({ size: 3 })).toMatchObject({ prompt: '{"size":3}', details: [], kind: "interrupt" });
    const long = { rows: Array(500).fill(0) };
    expect(asked(long)?.prompt).toHaveLength(300);
    expect(asked(long)?.details).toEqual(Object.entries(long));
  });

  test("any payload is an interrupt", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (payload) => {
        const { expires_ms, prompt, kind } = asked(payload) ?? {};
        expect(typeof prompt).toBe("string");
        expect(kind).not.toBe("");
        expect(expires_ms === null || Number.isFinite(expires_ms)).toBe(true);
      }),
    );
  });
});
