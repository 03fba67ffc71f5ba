import type { Problem } from "./types.js";

/**
 * Why a request was refused, or why a stream cannot continue. `message` is for people; `code` is the stable word of the
 * contract (`not_found`, `cursor_ahead`, `unauthorized` …), or one of this package: `unreachable` (no answer),
 * `http_502` (an answer that is not the server's).
 */
export class RunreelError extends Error {
  override readonly name = "RunreelError";
  readonly code: string;
  /** The HTTP status; 0 when there was no answer. */
  readonly status: number;

  constructor(
    readonly problem: Problem,
    options?: ErrorOptions,
  ) {
    const { title, detail, hint } = problem;
    super([detail ?? title, hint].filter(Boolean).join(": "), options);
    this.code = problem.code;
    this.status = problem.status;
  }
}

/** No answer: a name that cannot be resolved, a closed port, a page that is not allowed to ask (CORS), no network. */
export function unreachable(cause: unknown): RunreelError {
  return new RunreelError(
    { title: "The server cannot be reached", status: 0, code: "unreachable" },
    { cause },
  );
}

/** Reads an error response. A proxy's HTML page becomes a problem as well, so callers have one case. */
export async function problemOf(response: Response): Promise<Problem> {
  const { status } = response;
  const fallback: Problem = {
    title: response.statusText || `HTTP ${status}`,
    status,
    code: `http_${status}`,
  };
  if (!response.headers.get("content-type")?.includes("json")) return fallback;
  try {
    return { ...fallback, ...((await response.json()) as Partial<Problem>), status };
  } catch {
    return fallback;
  }
}
