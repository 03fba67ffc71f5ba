import { authorization } from "./token";
import type { Decision, EventPage, Problem, Run, RunEvent, RunPage, Timeline } from "./types";

/** Every refusal of the server, and every answer that is not one of ours, as one error. */
export class ApiError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail ?? problem.title);
    this.name = "ApiError";
  }
}

/** Reads an error response. A proxy's HTML page becomes a problem as well, so callers have one case. */
export async function problemOf(response: Response): Promise<Problem> {
  const fallback: Problem = {
    title: response.statusText || `HTTP ${response.status}`,
    status: response.status,
    code: `http_${response.status}`,
  };
  if (!response.headers.get("content-type")?.includes("json")) return fallback;
  try {
    return { ...fallback, ...((await response.json()) as Partial<Problem>), status: response.status };
  } catch {
    return fallback;
  }
}

export type Query = Record<string, string | number | null | undefined>;

export function withQuery(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  const text = search.toString();
  return text === "" ? path : `${path}?${text}`;
}

/** A request with the tab's token; every answer but a success is an `ApiError`. */
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = { accept: "application/json", ...authorization(), ...(init.headers as object) };
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers });
  } catch (cause) {
    if (init.signal?.aborted) throw cause;
    throw new ApiError({ title: "The server cannot be reached", status: 0, code: "unreachable" });
  }
  if (!response.ok) throw new ApiError(await problemOf(response));
  return response;
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await call(path, signal ? { signal } : {});
  return (await response.json()) as T;
}

async function post(path: string, body: unknown): Promise<void> {
  const headers = { "content-type": "application/json" };
  await call(path, { method: "POST", headers, body: JSON.stringify(body) });
}

const runPath = (runId: string) => `/api/runs/${encodeURIComponent(runId)}`;

export const paths = {
  runStream: (runId: string) => `/api/stream/runs/${encodeURIComponent(runId)}`,
  allRunsStream: (query: Query) => withQuery("/api/stream/runs", query),
};

export const api = {
  runs: (query: Query, signal?: AbortSignal) => get<RunPage>(withQuery("/api/runs", query), signal),

  run: (runId: string, signal?: AbortSignal) => get<Run>(runPath(runId), signal),

  timeline: (runId: string, signal?: AbortSignal) => get<Timeline>(`${runPath(runId)}/timeline`, signal),

  /** The event that follows the one with this id; `null` when retention has removed it. */
  async event(runId: string, seq: number, after: string, signal?: AbortSignal): Promise<RunEvent | null> {
    const path = withQuery(`${runPath(runId)}/events`, { after, limit: 1 });
    const page = await get<EventPage>(path, signal);
    const first = page.events[0];
    return first?.seq === seq ? first : null;
  },

  cancel: (runId: string, reason: string) => post(`${runPath(runId)}/cancel`, { reason }),

  /** Answers an interrupt. The first answer stands; that it was taken is told by the run's log. */
  resume: (runId: string, interrupt_id: string, decision: Decision, value?: unknown) =>
    post(`${runPath(runId)}/resume`, { interrupt_id, decision, value }),

  /** The whole log, one event a line, as a file's bytes. */
  async exportEvents(runId: string): Promise<Blob> {
    const response = await call(withQuery(`${runPath(runId)}/events`, { after: 0 }), {
      headers: { accept: "application/x-ndjson" },
    });
    return response.blob();
  },
};
