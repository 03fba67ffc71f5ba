import { expect, test } from "vitest";
import { isSame } from "./compare.svelte";

test("values that differ in no more than the ids of their runs say the same", () => {
  const spawned = (run_id: string) => ({ run_id, agent: "researcher", task: "look" });
  expect(isSame(spawned("r1"), spawned("r2"))).toBe(true);
  const call = (id: string) => [{ type: "tool_call", id, name: "search", args: { q: "x" } }];
  expect(isSame(call("call_1"), call("call_2"))).toBe(true);
  const large = (artifact_id: string, sha256: string) => ({ $artifact: { artifact_id, sha256 } });
  expect(isSame(large("a1", "5a"), large("a2", "5a"))).toBe(true);
  expect(isSame(large("a1", "5a"), large("a2", "5b"))).toBe(false);
  expect(isSame({ b: 1, a: { id: "x" } }, { a: { id: "x" }, b: 1 })).toBe(true);
  expect(isSame({ id: "AC-1" }, { id: "AC-2" })).toBe(false);
});
