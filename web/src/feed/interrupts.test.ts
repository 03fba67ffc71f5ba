import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Interrupts } from "@runreel/client/fold";
import { RunView } from "./fold";
import { askedBy } from "./interrupts";
import { event, tell, told } from "./testing";

const requested = (seq: number, span_id: string, payload: unknown = {}) =>
  event(seq, "interrupt.requested", { span_id, payload });

describe("open interrupts", () => {
  test("the view shows them once the log has been read to its end, not while it is replayed", () => {
    const view = new RunView();
    tell(view, told(requested(1, "a")));
    expect(view.caughtUp).toBe(false);
    tell(view, told({ type: "stream.caught_up", last_seq: 1, cursor: null }));
    expect(view.caughtUp).toBe(true);
    expect([...view.interrupts.open.keys()]).toEqual(["a"]);
  });
});

describe("what an interrupt asks", () => {
  const asked = (payload: unknown) => {
    const interrupts = new Interrupts();
    interrupts.take(requested(1, "a", payload));
    const open = interrupts.open.get("a");
    return open && { kind: open.kind, ...askedBy(open) };
  };

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
      kind: "approval",
      prompt: "Send it?",
      expires_ms: Date.parse("2025-04-01T12:00:00Z"),
      options: [],
      edited: undefined,
      details: [["details", { to: "all" }]],
    });
  });

  test("its options are answers to choose from, whatever shape they have", () => {
    const options = ["yes", { label: "No", value: 0 }, { id: "later" }, 7, "yes"];
    expect(asked({ prompt: "?", options })?.options).toEqual([
      { label: "yes", value: "yes" },
      { label: "No", value: 0 },
      { label: "later", value: "later" },
    ]);
  });

  test("arguments are edited only where the run says that it takes others", () => {
    expect(asked({ args: { to: "all" } })?.edited).toBeUndefined();
    expect(asked({ args: { to: "all" }, allowed_decisions: ["approve", "edit"] })?.edited).toEqual({
      to: "all",
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
