import { RunreelError } from "@runreel/client";
import { indexOf } from "../api/client";
import { rowsOf, type EventRow } from "./row";

/** Maximum number of rows in one page. */
const page_rows = 5_000;
const again_ms = 1_000;

/** The rows of the events from `from` to before `to`, page by page, oldest first. */
export async function* rowsBetween(
  run_id: string,
  from: number,
  to: number,
  signal: AbortSignal,
): AsyncGenerator<EventRow[]> {
  const asked = (first: number) =>
    first < to
      ? persistent(() => stretch(run_id, first, Math.min(to, first + page_rows), signal), signal)
      : null;
  let next = asked(from);
  for (let first = from + page_rows; next !== null; first += page_rows) {
    const rows = await next;
    // Requested while this page is processed.
    next = asked(first);
    next?.catch(() => undefined);
    yield rows;
  }
}

/** As many pages as it takes: a page ends early where payloads are large. */
async function stretch(run_id: string, from: number, to: number, signal: AbortSignal): Promise<EventRow[]> {
  const pages: EventRow[][] = [];
  for (let before: number | null = to; before !== null && before > from;) {
    const page = await indexOf(run_id, before, before - from, signal);
    pages.unshift(rowsOf(page));
    before = page.next_before ?? null;
  }
  return pages.flat();
}

/** Retries until there is an answer; a refusal is one. */
export async function persistent<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      signal.throwIfAborted();
      const isRefused =
        error instanceof RunreelError && error.problem.status >= 400 && error.problem.status < 429;
      if (isRefused) throw error;
      await new Promise((rested) => setTimeout(rested, again_ms));
    }
  }
}
