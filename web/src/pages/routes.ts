/** The addresses of the UI, both ways. */
export type PageName = "runs" | "run" | "inbox" | "tokens";

export type Route = { page: Exclude<PageName, "run"> } | { page: "run"; id: string } | { page: "missing" };

/** Pages that are about nothing in particular, by their address. */
const alone = new Map<string, Exclude<PageName, "run">>([
  ["", "runs"],
  ["runs", "runs"],
  ["inbox", "inbox"],
  ["tokens", "tokens"],
]);

export function routeOf(path: string): Route {
  const [name = "", id = "", ...rest] = path.replace(/^\/|\/$/g, "").split("/");
  const page = alone.get(name);
  if (rest.length > 0 || page === undefined) return { page: "missing" };
  if (id === "") return { page };
  return name === "runs" ? { page: "run", id: decode(id) } : { page: "missing" };
}

export const runPath = (run_id: string): string => `/runs/${encodeURIComponent(run_id)}`;

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
