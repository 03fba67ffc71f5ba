import type { Run } from "@runreel/client";

/** A row of the list: a run, or one that was unfolded below another. */
export interface RunRow {
  run: Run;
  depth: number;
  /** How many runs are below it, as far as the server counts. */
  below: number;
  /** The worst status among them. */
  worst: string;
  isOpen: boolean;
}

export const statusOf = (run: Run): string => (run.stalled ? "stalled" : run.status);

/** The list with unfolded descendants below their parents, oldest first. */
export function rowsOf(runs: readonly Run[], unfolded: ReadonlyMap<string, readonly Run[]>): RunRow[] {
  return runs.flatMap((run) => {
    const below = run.descendants?.count ?? 0;
    const inside = unfolded.get(run.run_id);
    const worst = run.descendants?.worst_status ?? "";
    const row: RunRow = { run, depth: 0, below, worst, isOpen: inside !== undefined };
    return inside === undefined ? [row] : [row, ...treeOf(run, inside)];
  });
}

function treeOf(root: Run, inside: readonly Run[]): RunRow[] {
  const byParent = new Map<string, Run[]>();
  for (const run of inside) {
    const parent = run.parent_run_id ?? root.run_id;
    const siblings = byParent.get(parent);
    if (siblings === undefined) byParent.set(parent, [run]);
    else siblings.push(run);
  }
  const rows: RunRow[] = [];
  const walk = (parent: string, depth: number) => {
    for (const run of byParent.get(parent) ?? []) {
      rows.push({ run, depth, below: 0, worst: "", isOpen: false });
      walk(run.run_id, depth + 1);
    }
  };
  walk(root.run_id, 1);
  return rows;
}
