import type { RunEvent } from "@runreel/client";
import { fields } from "@runreel/client/fold";
import { patched } from "./patch";
import type { EventRow } from "./row";

/** A run's state from its events: a snapshot, and the changes since. */
export interface EventState {
  /** The seqs of its events, the snapshot first. */
  seqs: number[];
  state: unknown;
  /** Why it is not the whole state; empty if it is. */
  trouble: string;
}

const changes_max = 999;

/** The seqs of the last snapshot and of the changes after it; empty when there are none. */
export function stateSeqs(rows: readonly EventRow[]): number[] {
  const seqs: number[] = [];
  for (let at = rows.length - 1; at >= 0 && seqs.length <= changes_max; at -= 1) {
    const row = rows[at] as EventRow;
    if (row.type !== "agui.state_delta" && row.type !== "agui.state_snapshot") continue;
    seqs.unshift(row.seq);
    if (row.type === "agui.state_snapshot") break;
  }
  return seqs;
}

/** The state after these events. */
export function stateOfEvents(seqs: number[], events: ReadonlyMap<number, RunEvent>): EventState {
  let state: unknown = {};
  for (const seq of seqs) {
    const event = events.get(seq);
    if (event === undefined) return { seqs, state, trouble: `Event #${seq} could not be read.` };
    const payload = fields(event.payload);
    if ("$artifact" in payload) return { seqs, state, trouble: `Event #${seq} is an artifact: open it.` };
    try {
      state = "snapshot" in payload ? payload["snapshot"] : patched(state, payload["delta"]);
    } catch (error) {
      return {
        seqs,
        state,
        trouble: `The change in event #${seq} does not fit: ${(error as Error).message}.`,
      };
    }
  }
  return { seqs, state, trouble: "" };
}
