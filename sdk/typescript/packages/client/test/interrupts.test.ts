import { describe, expect, test } from "vitest";
import { Interrupts } from "../src/interrupts.js";
import { event } from "./frames.js";

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
});
