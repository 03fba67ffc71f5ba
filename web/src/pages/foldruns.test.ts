import type { Run } from "@runreel/client";
import { expect, test } from "vitest";
import { foldRuns } from "./foldruns";

const run = (run_id: string, parent_run_id: string | null, status = "completed") =>
  ({ run_id, parent_run_id, status, stalled: false }) as Run;

const list = [run("d", "c", "failed"), run("c", "a"), run("b", "gone", "running"), run("a", null)];

test("descendants are folded below the topmost run that is loaded, and the worst of them is told", () => {
  expect(foldRuns(list, new Set())).toEqual([
    { run: list[2], depth: 0, below: 0, worst: "", isOpen: false },
    { run: list[3], depth: 0, below: 2, worst: "failed", isOpen: false },
  ]);
});

test("an opened run has its descendants below it, the oldest first", () => {
  const rows = foldRuns(list, new Set(["a"]));
  expect(rows.map((row) => [row.run.run_id, row.depth])).toEqual([
    ["b", 0],
    ["a", 0],
    ["c", 1],
    ["d", 2],
  ]);
});
