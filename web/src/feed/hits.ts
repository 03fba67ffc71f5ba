import { RunreelError, type components } from "@runreel/client";
import { runPath } from "../api/paths";
import { transport } from "../api/client";

/** Each looks through some 20 000 events. */
const requests_max = 20;
const page_hits = 1_000;
/** A server that is busy or away is asked again so often: until it answers, nobody knows that nothing is found. */
const again_ms = 1_000;

type Hits = components["schemas"]["Hits"];

/** The events of a run with these words in their payloads, found by the server. */
export async function hitsOf(run_id: string, q: string, signal: AbortSignal): Promise<ReadonlySet<number>> {
  const found = new Set<number>();
  let after = 0;
  for (let requests = 0; requests < requests_max; requests += 1) {
    const query = { q, after, limit: page_hits };
    const page = await answered(() => transport.json<Hits>(`${runPath(run_id)}/search`, { query, signal }));
    for (const { seq } of page.hits) found.add(seq);
    if (!page.has_more) break;
    after = page.next_after;
  }
  return found;
}

async function answered<T>(ask: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      // An abort is no answer either, and no reason to go on.
      if (!(error instanceof RunreelError) || isRefusal(error.status)) throw error;
    }
    await new Promise((again) => setTimeout(again, again_ms));
  }
}

const isRefusal = (status: number) => status >= 400 && status < 500 && status !== 429;
