import type { Run } from "@runreel/client";
import { runs } from "../api/client";

const requests_max = 20;
const page_runs = 200;

/** The descendants of a run, as many as these requests find; `root.descendants` has their number. */
export async function descendantsOf(root: Run, signal: AbortSignal): Promise<Run[]> {
  const found: Run[] = [];
  const parents = [root.run_id];
  const wanted = root.descendants?.count ?? 0;
  let requests = 0;
  for (let parent = parents.shift(); parent !== undefined; parent = parents.shift()) {
    if (requests === requests_max || (requests > 0 && found.length >= wanted)) break;
    requests += 1;
    const page = await runs.list({ parent_run_id: parent, limit: page_runs, order: "asc" }, signal);
    found.push(...page.runs);
    parents.push(...page.runs.map((run) => run.run_id));
  }
  return found;
}
