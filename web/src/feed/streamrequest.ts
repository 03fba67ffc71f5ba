/** The server pings every 10 s. Whoever is taken for dead too early loses nothing: the next connection goes on from there. */
export const silent_ms = 12_000;

/** A stream by its own route, as a member of one request for many. */
export interface StreamRequest {
  stream: "run" | "tree" | "thread" | "runs";
  [member: string]: unknown;
}

/** What `POST /api/stream` calls the stream of this path; null when it is none that it knows. */
export function streamRequestOf(path: string): StreamRequest | null {
  const [pathname = "", search = ""] = path.split("?");
  const [kind, id = ""] = pathname.replace("/api/stream/", "").split("/").map(decodeURIComponent);
  const query: Record<string, string> = Object.fromEntries(new URLSearchParams(search));
  const { tree, tail, tokens, ...same } = query;
  const rest = {
    ...same,
    ...(tail !== undefined && { tail: Number(tail) }),
    ...(tokens !== undefined && { tokens: tokens !== "false" }),
  };
  if (kind === "runs" && id === "") return { stream: "runs", ...rest };
  if (kind === "runs") return { stream: tree === "true" ? "tree" : "run", run_id: id, ...rest };
  if (kind === "threads") return { stream: "thread", thread_id: id, ...rest };
  return null;
}
