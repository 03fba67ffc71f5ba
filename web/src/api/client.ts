import { Runs, Transport, type RunEvent } from "@runreel/client";
import { authorization } from "./token";

/** The server that the page came from, asked with the tab's token, whatever it is by then. */
export const transport = new Transport({
  url: "",
  fetch: (url, init) =>
    fetch(url, { ...init, headers: { ...(init?.headers as object), ...authorization() } }),
});

export const runs = new Runs(transport);

/** The event that follows the one with this id; `null` when retention has removed it. */
export async function eventAfter(
  run_id: string,
  after: string,
  seq: number,
  signal?: AbortSignal,
): Promise<RunEvent | null> {
  const page = await runs.events(run_id, { after, limit: 1 }, signal);
  const first = page.events[0];
  return first?.seq === seq ? first : null;
}

/** The whole log, one event a line, as a file's bytes. */
export async function exportEvents(run_id: string): Promise<Blob> {
  const headers = { accept: "application/x-ndjson" };
  const response = await transport.call(`/api/runs/${run_id}/events`, { query: { after: 0 }, headers });
  return response.blob();
}
