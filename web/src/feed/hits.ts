import type { components } from "@runreel/client";
import { runPath } from "../api/paths";
import { transport } from "../api/client";
import { persistent } from "./indexpages";

/** Each request searches some 20 000 events. */
const requests_max = 20;
const page_hits = 1_000;

type Hits = components["schemas"]["Hits"];

/** The seqs of a run's events with these words in their payloads, found by the server. */
export async function hitsOf(run_id: string, q: string, signal: AbortSignal): Promise<ReadonlySet<number>> {
  const found = new Set<number>();
  let after = 0;
  for (let requests = 0; requests < requests_max; requests += 1) {
    const query = { q, after, limit: page_hits };
    const ask = () => transport.json<Hits>(`${runPath(run_id)}/search`, { query, signal });
    // A failed request must not look like an empty result.
    const page = await persistent(ask, signal);
    for (const { seq } of page.hits) found.add(seq);
    if (!page.has_more) break;
    after = page.next_after;
  }
  return found;
}
