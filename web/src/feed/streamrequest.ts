/** The server pings every 10 s. A connection given up too early loses nothing: the next one continues from there. */
export const silent_ms = 12_000;

/** A stream by its own route, as a member of one request for many. */
export interface StreamRequest {
  stream: "run" | "tree" | "thread" | "runs";
  [member: string]: unknown;
}

/** The stream of this path as a member of `POST /api/stream`; null for an unknown path. */
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
