import { isTerminal } from "@runreel/client/fold";
import { runs } from "../api/client";

const requests_max = 30;
const page_runs = 500;

/** How many runs below this one have not ended; `isMore` when counting was given up. */
export async function below(
  run_id: string,
  signal: AbortSignal,
): Promise<{ count: number; isMore: boolean }> {
  const parents = [run_id];
  let count = 0;
  let requests = 0;
  for (let parent = parents.shift(); parent !== undefined; parent = parents.shift()) {
    let cursor: string | null = null;
    do {
      if (requests === requests_max) return { count, isMore: true };
      requests += 1;
      const page = await runs.list({ parent_run_id: parent, limit: page_runs, cursor }, signal);
      count += page.runs.filter((run) => !isTerminal(run.status)).length;
      // Descendants of an ended run may still be active.
      parents.push(...page.runs.map((run) => run.run_id));
      cursor = page.next_cursor ?? null;
    } while (cursor !== null);
  }
  return { count, isMore: false };
}
