import { familyOf } from "@runreel/client/fold";
import type { EventRow } from "../feed/row";

/** The families whose events are shown one by one; of others, only warnings and errors are. */
const major = new Set(["run", "message", "reasoning", "tool", "worker", "interrupt", "artifact"]);

export const isMinor = ({ level, type }: EventRow): boolean =>
  level === "debug" || (level === "info" && !major.has(familyOf(type)));

/** An entry of the list: an event, or a stretch of minor ones. */
export interface Entry {
  /** The index into the rows of the event, or of the first of the stretch. */
  at: number;
  /** How many it stands for; 0 for an event. */
  count: number;
  isOpen: boolean;
}

/** The log with stretches of minor events as one entry each; visits each row once while rows are only added. */
export class FoldedRows {
  #rows: readonly EventRow[] | null = null;
  #indices: readonly number[] | null = null;
  #opened: ReadonlySet<number> = new Set();
  #looked = 0;
  #ats: number[] = [];
  #counts: number[] = [];
  /** How many of the last rows are minor, and where their stretch begins. */
  #minor = 0;
  #head = 0;

  get length(): number {
    return this.#ats.length;
  }

  /** `indices` of the rows that are shown, in order; null for all. `opened`: the first seqs of open stretches. */
  update(rows: readonly EventRow[], indices: readonly number[] | null, opened: ReadonlySet<number>): void {
    if (rows !== this.#rows || indices !== this.#indices || opened !== this.#opened) {
      this.#rows = rows;
      this.#indices = indices;
      this.#opened = opened;
      this.#ats = [];
      this.#counts = [];
      this.#looked = 0;
      this.#minor = 0;
    }
    const count = (indices ?? rows).length;
    for (; this.#looked < count; this.#looked += 1) this.#take(indices?.[this.#looked] ?? this.#looked);
  }

  at(index: number): Entry {
    const [at = 0, count = 0] = [this.#ats[index], this.#counts[index]];
    return { at, count, isOpen: count > 0 && this.#isOpen(at) };
  }

  /** The entry that shows the row; -1 for a row that is not shown. */
  indexOf(at: number): number {
    const indices = this.#indices;
    if (indices !== null && indices[placeIn(indices, at)] !== at) return -1;
    return placeIn(this.#ats, at + 1) - 1;
  }

  /** The rows of a stretch, at most `most`. */
  rowsOf({ at, count }: Entry, most: number): EventRow[] {
    const indices = this.#indices;
    if (indices === null) return this.#rows?.slice(at, at + Math.min(count, most)) ?? [];
    const place = placeIn(indices, at);
    return indices.slice(place, place + Math.min(count, most)).map((each) => this.#rows?.[each] as EventRow);
  }

  #isOpen(at: number): boolean {
    return this.#opened.has(this.#rows?.[at]?.seq ?? 0);
  }

  #take(at: number): void {
    const row = this.#rows?.[at];
    if (row === undefined || !isMinor(row)) {
      this.#minor = 0;
      return this.#push(at);
    }
    this.#minor += 1;
    if (this.#minor === 1) {
      this.#head = this.#ats.length;
      return this.#push(at);
    }
    this.#counts[this.#head] = this.#minor;
    const first = this.#ats[this.#head] as number;
    if (!this.#isOpen(first)) return;
    if (this.#minor === 2) this.#push(first);
    this.#push(at);
  }

  #push(at: number): void {
    this.#ats.push(at);
    this.#counts.push(0);
  }
}

/** The index of the first number that is not below `least`. */
function placeIn(ascending: readonly number[], least: number): number {
  let low = 0;
  let high = ascending.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ascending[middle] as number) < least) low = middle + 1;
    else high = middle;
  }
  return low;
}
