import type { Run } from "@runreel/client";

/** A row of the list: a run, or one that is folded below another. */
export interface RunRow {
  run: Run;
  depth: number;
  /** The runs that are folded below it, of those that are loaded. */
  below: number;
  /** The first of `worstFirst` that any of them has. */
  worst: string;
  isOpen: boolean;
}

const worstFirst = [
  "stalled",
  "failed",
  "interrupted",
  "running",
  "waiting",
  "queued",
  "cancelled",
  "completed",
];

export const statusOf = (run: Run): string => (run.stalled ? "stalled" : run.status);

const worstOf = (runs: readonly Run[]): string =>
  worstFirst.find((status) => runs.some((run) => statusOf(run) === status)) ?? "";

/** The list with each run's descendants folded below it; those whose ancestors are not loaded stand by themselves. */
export function foldRuns(runs: readonly Run[], opened: ReadonlySet<string>): RunRow[] {
  const byId = new Map(runs.map((run) => [run.run_id, run]));
  const below = new Map<string, Run[]>();
  const parentOf = (run: Run) => (run.parent_run_id ? byId.get(run.parent_run_id) : undefined);
  const depthOf = (run: Run) => {
    let depth = 0;
    for (let above = parentOf(run); above !== undefined; above = parentOf(above)) depth += 1;
    return depth;
  };
  const tops: Run[] = [];
  for (const run of runs) {
    let top = run;
    for (let above = parentOf(top); above !== undefined; above = parentOf(top)) top = above;
    if (top === run) tops.push(run);
    else below.set(top.run_id, [run, ...(below.get(top.run_id) ?? [])]);
  }
  return tops.flatMap((run) => {
    const inside = below.get(run.run_id) ?? [];
    const isOpen = opened.has(run.run_id);
    const row: RunRow = { run, depth: 0, below: inside.length, worst: worstOf(inside), isOpen };
    const rest = isOpen ? inside : [];
    return [
      row,
      ...rest.map((each) => ({ run: each, depth: depthOf(each), below: 0, worst: "", isOpen: false })),
    ];
  });
}
