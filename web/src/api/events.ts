import type { EventPage, RunEvent } from "@runreel/client";
import { transport } from "./client";
import { runPath } from "./paths";

/** These events of a run, those that it still has. */
export async function eventsOf(
  run_id: string,
  seqs: readonly number[],
  signal: AbortSignal,
): Promise<RunEvent[]> {
  const query = { seqs: seqs.join(",") };
  return (await transport.json<EventPage>(`${runPath(run_id)}/events`, { query, signal })).events;
}
