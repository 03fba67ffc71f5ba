import type { Run, RunEvent } from "@runreel/client";
import { fields, isTerminal, messageText, statusAfter } from "@runreel/client/fold";
import { outputText } from "./facts";
import { errorLine } from "./failure";
import { atMs } from "./read";

/** As the server cuts its excerpts. */
const line_chars_max = 300;

/** What an event says about its run's row. A pure function: `null` when the row already knows more. */
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

/** A run that is told of late began with the first thing that happened in it. The server's times compare as text. */
const earlier = (started_at: string | null, at: string) =>
  started_at !== null && at < started_at ? at : started_at;

/** What is told of a run, and what was known of it: whichever has seen more of its log. Only the server adds up. */
export const newer = (told: Run, known: Run | undefined): Run =>
  known !== undefined && known.last_seq > told.last_seq
    ? { ...told, ...known, usage: told.usage ?? null, descendants: told.descendants ?? null }
    : told;

/** Whether it stands below another where the newest is first; of one time, the server goes by the id. */
export const isBelow = (run: Run, other: Run): boolean =>
  run.created_at === other.created_at ? run.run_id < other.run_id : run.created_at < other.created_at;

/** How it went, in a line: why it failed, or what came out. */
export function lineOf(run: Run): string {
  const told = run.excerpt?.text ?? "";
  if (run.status === "failed") return told || oneLine(errorLine(run.error));
  return oneLine(outputText(run.output) ?? "") || told;
}

function oneLine(text: string): string {
  const line = text
    .slice(0, 4 * line_chars_max)
    .replace(/\s+/g, " ")
    .trim();
  return line.length > line_chars_max ? `${line.slice(0, line_chars_max - 1)}…` : line;
}

/** How long it took, or takes until now; `null` when that is not known. */
export function tookOf(run: Run, now_ms: number): number | null {
  if (!run.started_at || (!run.ended_at && isTerminal(run.status))) return null;
  const end = run.ended_at ? atMs(run.ended_at) : now_ms;
  return Math.max(0, end - atMs(run.started_at));
}

/** The number that a list is sorted by, as far as the row knows it; `null` for one that moves by itself. */
export function placeOf(run: Run, sort: string): number | null {
  if (sort === "updated") return atMs(run.last_event_at);
  if (sort === "events") return run.last_seq;
  if (sort === "duration") return run.ended_at ? tookOf(run, 0) : null;
  // What it spent is read when it ends.
  if (sort === "tokens" || sort === "cost") return null;
  return atMs(run.created_at);
}
