/** The addresses of the UI, both ways. */
export type Route = { page: "runs" | "tokens" } | { page: "run"; run_id: string } | { page: "missing" };

export function routeOf(path: string): Route {
  if (path === "/" || path === "/runs" || path === "/runs/") return { page: "runs" };
  if (path === "/tokens" || path === "/tokens/") return { page: "tokens" };
  const run = /^\/runs\/([^/]+)\/?$/.exec(path);
  return run?.[1] ? { page: "run", run_id: decode(run[1]) } : { page: "missing" };
}

export const runPath = (run_id: string): string => `/runs/${encodeURIComponent(run_id)}`;

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
