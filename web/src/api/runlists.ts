import type { components, Query } from "@runreel/client";
import { transport } from "./client";
import { runPath } from "./paths";

export type Histogram = components["schemas"]["RunHistogram"];
export type SearchState = components["schemas"]["SearchState"];
export type Hit = components["schemas"]["Hit"];

/** How many runs were created when, by status. */
export const histogramOf = (query: Query, signal: AbortSignal): Promise<Histogram> =>
  transport.json("/api/runs/histogram", { query, signal });

/** The first event of the run that has all the words. */
export async function firstHit(run_id: string, q: string, signal: AbortSignal): Promise<Hit | null> {
  const query = { q, limit: 1 };
  const { hits } = await transport.json<components["schemas"]["Hits"]>(`${runPath(run_id)}/search`, {
    query,
    signal,
  });
  return hits[0] ?? null;
}

/** An event of a run without its payload. */
export interface Told {
  seq: number;
  at_ms: number;
  type: string;
  title: string;
  level: string;
}

interface IndexPage {
  first_seq: number | null;
  began_at: string | null;
  at_ms: number[];
  type: string[];
  title: string[];
  level: string[];
}

/** The last events of a run, the newest first. */
export async function lastEvents(run_id: string, limit: number, signal: AbortSignal): Promise<Told[]> {
  const query = { view: "index", limit };
  const page = await transport.json<IndexPage>(`${runPath(run_id)}/events`, { query, signal });
  const began_ms = Date.parse(page.began_at ?? "");
  const told = page.type.map((type, at) => ({
    seq: (page.first_seq ?? 0) + at,
    at_ms: began_ms + (page.at_ms[at] ?? 0),
    type,
    title: page.title[at] ?? "",
    level: page.level[at] ?? "info",
  }));
  return told.reverse();
}
