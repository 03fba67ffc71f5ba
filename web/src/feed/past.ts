import { RunView } from "./fold";
import type { EventRow } from "./row";

/** A run as it was after each of its events: the same fold over fewer rows. */
export class Past {
  #view: RunView | null = null;

  constructor(readonly now: RunView) {}

  /** The view after the event `seq`. Going forward costs the events in between; going back starts over. */
  at(seq: number): RunView {
    const { rows, bodies } = this.now;
    let view = this.#view;
    if (view === null || view.last_seq > seq) view = new RunView(bodies);
    for (let at = view.rows.length; at < rows.length && (rows[at] as EventRow).seq <= seq; at += 1) {
      view.takeRow(rows[at] as EventRow);
    }
    this.#view = view;
    return view;
  }
}

/** Longest pause between two events that is played, milliseconds. */
export const lull_ms = 1_500;

/** The index of the last row that is played within `ms` after that at `from`, with long pauses cut short. */
export function playedTo(
  rows: readonly EventRow[],
  from: number,
  ms: number,
): { index: number; left_ms: number } {
  let left_ms = ms;
  let index = from;
  for (; index + 1 < rows.length; index += 1) {
    // Producers may report events late: time does not run backwards.
    const gap_ms = (rows[index + 1] as EventRow).at_ms - (rows[index] as EventRow).at_ms;
    const wait_ms = Math.min(lull_ms, Math.max(0, gap_ms));
    if (wait_ms > left_ms) break;
    left_ms -= wait_ms;
  }
  return { index, left_ms };
}
