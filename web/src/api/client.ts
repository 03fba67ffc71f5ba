import { Runs, Transport, type components, type RunEvent } from "@runreel/client";
import { runPath } from "./paths";
import { authorization } from "./token";

/** Requests to the page's own server, with the tab's current token. */
export const transport = new Transport({
  url: "",
  fetch: (url, init) =>
    fetch(url, { ...init, headers: { ...(init?.headers as object), ...authorization() } }),
});

export const runs = new Runs(transport);

/** A page of the index of a run, which ends before the seq `before`; without it, the newest. */
export function indexOf(
  run_id: string,
  before: number | null,
  limit: number,
  signal?: AbortSignal,
): Promise<components["schemas"]["EventIndex"]> {
  const query = { view: "index", before, limit };
  return transport.json(`${runPath(run_id)}/events`, { query, signal });
}

/** Maximum number of events in one request. */
export const seqs_max = 1_000;

/** These events in full, at most `seqs_max`, as far as the log has them. */
export async function eventsAt(
  run_id: string,
  seqs: readonly number[],
  signal?: AbortSignal,
): Promise<RunEvent[]> {
  const found: RunEvent[] = [];
  let left = [...seqs].sort((a, b) => a - b).slice(0, seqs_max);
  while (left.length > 0) {
    const query = { seqs: left.join(",") };
    const page = await transport.json<{ events: RunEvent[]; has_more: boolean; next_after: number }>(
      `${runPath(run_id)}/events`,
      { query, signal },
    );
    found.push(...page.events);
    left = page.has_more ? left.filter((seq) => seq > page.next_after) : [];
  }
  return found;
}

/** The whole log as a file, one JSON event per line. */
export async function exportEvents(run_id: string): Promise<Blob> {
  const headers = { accept: "application/x-ndjson" };
  const response = await transport.call(`/api/runs/${run_id}/events`, { query: { after: 0 }, headers });
  return response.blob();
}
