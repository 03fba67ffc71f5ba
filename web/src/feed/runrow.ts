import type { Run, RunEvent } from "@runreel/client";
import { fields, isTerminal, messageText, statusAfter } from "@runreel/client/fold";
import { outputText } from "./facts";
import { errorLine } from "./failure";
import { atMs } from "./read";

/** The server's bound for excerpts. */
const line_chars_max = 300;

/** The run's row after an event. A pure function: `null` when the row is newer already. */
export function runAfter(run: Run, event: RunEvent): Run | null {
  if (event.seq <= run.last_seq) return null;
  const status = statusAfter(event.type) ?? run.status;
  const next: Run = {
    ...run,
    status,
    last_seq: event.seq,
    last_event_at: event.at,
    stalled: false,
    started_at: event.type === "run.started" ? event.at : earlier(run.started_at ?? null, event.at),
    ended_at: isTerminal(status) ? (run.ended_at ?? event.at) : null,
  };
  const payload = fields(event.payload);
  if (event.type === "message.completed") {
    const text = oneLine(messageText(event.payload) ?? "");
    if (text !== "") next.excerpt = { kind: "message", text };
  } else if (event.type === "run.completed") next.output = payload["output"] ?? null;
  else if (event.type === "run.failed") {
    next.error = payload["error"] ?? event.payload;
    const text = oneLine(errorLine(next.error));
    if (text !== "") next.excerpt = { kind: "error", text };
  }
  return next;
}

/** A run that is reported late began with its earliest event. The server's times compare as text. */
const earlier = (started_at: string | null, at: string) =>
  started_at !== null && at < started_at ? at : started_at;

/** The listed or the known row of a run, whichever has seen more of its log. Sums are always the server's. */
export const newer = (listed: Run, known: Run | undefined): Run =>
  known !== undefined && known.last_seq > listed.last_seq
    ? { ...listed, ...known, usage: listed.usage ?? null, descendants: listed.descendants ?? null }
    : listed;

/** Whether a run is below another if the newest is first; at the same time, the server sorts by id. */
export const isBelow = (run: Run, other: Run): boolean =>
  run.created_at === other.created_at ? run.run_id < other.run_id : run.created_at < other.created_at;

/** The outcome of a run in one line: its error or its output, or its last message. */
export function lineOf(run: Run): string {
  const excerpt = run.excerpt?.text ?? "";
  if (run.status === "failed") return excerpt || oneLine(errorLine(run.error));
  return oneLine(outputText(run.output) ?? "") || excerpt;
}

function oneLine(text: string): string {
  const line = text
    .slice(0, 4 * line_chars_max)
    .replace(/\s+/g, " ")
    .trim();
  return line.length > line_chars_max ? `${line.slice(0, line_chars_max - 1)}…` : line;
}

/** The duration of a run, until now if it has not ended; `null` when that is not known. */
export function tookOf(run: Run, now_ms: number): number | null {
  if (!run.started_at || (!run.ended_at && isTerminal(run.status))) return null;
  const end = run.ended_at ? atMs(run.ended_at) : now_ms;
  return Math.max(0, end - atMs(run.started_at));
}

/** The number that a list is sorted by; `null` if the row does not know it, or it changes with time. */
export function placeOf(run: Run, sort: string): number | null {
  if (sort === "updated") return atMs(run.last_event_at);
  if (sort === "events") return run.last_seq;
  if (sort === "duration") return run.ended_at ? tookOf(run, 0) : null;
  // Usage is read when the run ends.
  if (sort === "tokens" || sort === "cost") return null;
  return atMs(run.created_at);
}
