/** The addresses of the UI, both ways. */
export type PageName =
  | "runs"
  | "run"
  | "compare"
  | "threads"
  | "thread"
  | "inbox"
  | "sessions"
  | "session"
  | "artifacts"
  | "sql"
  | "insights"
  | "agents"
  | "settings"
  | "tokens";

export type Route = { page: PageName; id?: string } | { page: "missing" };

/** The page of an address by its first segment, and the page of one item if there is a second. */
const pages = new Map<string, readonly [PageName, PageName?]>([
  ["", ["runs"]],
  ["runs", ["runs", "run"]],
  ["compare", ["compare"]],
  ["threads", ["threads", "thread"]],
  ["inbox", ["inbox"]],
  ["sessions", ["sessions", "session"]],
  ["artifacts", ["artifacts"]],
  ["sql", ["sql"]],
  ["insights", ["insights"]],
  ["agents", ["agents"]],
  ["settings", ["settings"]],
  ["tokens", ["tokens"]],
]);

export function routeOf(path: string): Route {
  const [name = "", id = "", ...rest] = path.replace(/^\/|\/$/g, "").split("/");
  const [page, pageOfOne] = pages.get(name) ?? [];
  if (rest.length > 0 || page === undefined) return { page: "missing" };
  if (id === "") return { page };
  return pageOfOne === undefined ? { page: "missing" } : { page: pageOfOne, id: decode(id) };
}

export const runPath = (run_id: string): string => `/runs/${encodeURIComponent(run_id)}`;

export const threadPath = (thread_id: string): string => `/threads/${encodeURIComponent(thread_id)}`;

export const sessionPath = (session_id: string): string => `/sessions/${encodeURIComponent(session_id)}`;

/** The list of runs with a filter. */
export const runsPath = (filter: Record<string, string>): string => `/${searchWith("", filter)}`;

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A search string with some of its fields changed; empty values leave it. */
export function searchWith(search: string, changes: Record<string, string | number | null>): string {
  const next = new URLSearchParams(search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") next.delete(name);
    else next.set(name, String(value));
  }
  const text = next.toString();
  return text === "" ? "" : `?${text}`;
}
