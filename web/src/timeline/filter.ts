import { familyOf } from "@runreel/client/fold";
import type { EventRow } from "../feed/row";
import { all, wordsOf } from "./rows";
import { spelled } from "./spelling";

/** The rows of the log that match a filter; visits each row once while rows are only added. */
export class EventFilter {
  #query = "";
  #hidden: ReadonlySet<string> = all.hidden;
  #hits: ReadonlySet<number> = all.hits;
  #looked = 0;
  #found: number[] = [];
  #rows: readonly EventRow[] | null = null;

  /**
   * Indices into `rows`, or `null` when everything matches. `hits` are the seqs of events in whose payloads the server
   * has found the words; for later events, the words are searched in their JSON, `bodyOf`.
   */
  update(
    rows: readonly EventRow[],
    query: string,
    hidden: ReadonlySet<string> = all.hidden,
    bodyOf: (seq: number) => string | null = () => null,
    hits: ReadonlySet<number> = all.hits,
  ): readonly number[] | null {
    const isSame = rows === this.#rows && hidden === this.#hidden && hits === this.#hits;
    if (query !== this.#query || !isSame) {
      this.#query = query;
      this.#hits = hits;
      this.#hidden = hidden;
      this.#rows = rows;
      this.#looked = 0;
      this.#found = [];
    }
    const words = wordsOf(query);
    if (words.length === 0 && hidden.size === 0) return null;
    for (; this.#looked < rows.length; this.#looked += 1) {
      const row = rows[this.#looked] as EventRow;
      if (hidden.has(familyOf(row.type))) continue;
      if (!hits.has(row.seq) && !matches(row, words, bodyOf)) continue;
      this.#found.push(this.#looked);
    }
    return this.#found;
  }
}

function matches(row: EventRow, words: string[], bodyOf: (seq: number) => string | null): boolean {
  const text = spelled(`${row.type} ${row.title} ${row.span_id ?? ""}`);
  const missing = words.filter((word) => !text.includes(word));
  if (missing.length === 0) return true;
  // Only the payload is searched, the envelope's last member: ids and times are not content.
  const whole = bodyOf(row.seq);
  if (whole === null) return false;
  const body = spelled(whole.slice(whole.indexOf('"payload":') + 10));
  return missing.every((word) => body.includes(word));
}
