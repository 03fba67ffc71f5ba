import type { components, Query } from "@runreel/client";
import { transport } from "./client";
import { runPath } from "./paths";

export type Histogram = components["schemas"]["RunHistogram"];
export type SearchState = components["schemas"]["SearchState"];
export type Hit = components["schemas"]["Hit"];

/** How many runs were created in each period, by status. */
export const histogramOf = (query: Query, signal: AbortSignal): Promise<Histogram> =>
  transport.json("/api/runs/histogram", { query, signal });

/** The first event of the run that contains all the words. */
export async function firstHit(run_id: string, q: string, signal: AbortSignal): Promise<Hit | null> {
  const query = { q, limit: 1 };
  const { hits } = await transport.json<components["schemas"]["Hits"]>(`${runPath(run_id)}/search`, {
    query,
    signal,
  });
  return hits[0] ?? null;
}
