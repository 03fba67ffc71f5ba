import type { Run } from "@runreel/client";
import { expect, test } from "vitest";
import { rowsOf } from "./foldruns";

const run = (run_id: string, parent_run_id: string | null, descendants?: Run["descendants"]) =>
  ({ run_id, parent_run_id, status: "completed", stalled: false, descendants }) as Run;

const list = [run("b", null), run("a", null, { count: 3, worst_status: "failed" })];

test("a run that is folded tells how many are below it and the worst of them", () => {
  expect(rowsOf(list, new Map())).toEqual([
    { run: list[0], depth: 0, below: 0, worst: "", isOpen: false },
    { run: list[1], depth: 0, below: 3, worst: "failed", isOpen: false },
  ]);
});

test("what was unfolded stands below its own parent, in the order of its beginning", () => {
  const below = [run("c", "a"), run("d", "a"), run("e", "c")];
  const rows = rowsOf(list, new Map([["a", below]]));
  expect(rows.map((row) => [row.run.run_id, row.depth])).toEqual([
    ["b", 0],
    ["a", 0],
    ["c", 1],
    ["e", 2],
    ["d", 1],
  ]);
});
