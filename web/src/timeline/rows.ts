import { familyOf } from "@runreel/client/fold";
import type { EventRow } from "../feed/row";
import type { Span, SpanTree } from "../feed/tree";

/** Rows of the log that match a filter; looks at each row once while rows are only added. */
export class EventFilter {
  #query = "";
  #hidden: ReadonlySet<string> = all.hidden;
  #hits: ReadonlySet<number> = none;
  #looked = 0;
  #found: number[] = [];
  #rows: readonly EventRow[] | null = null;

  /**
   * Indices into `rows`, or `null` when everything matches. `hits` are events in whose payloads the server has found the
   * words; they are looked for in `bodyOf` too, the event's JSON, of those that came later.
   */
  update(
    rows: readonly EventRow[],
    query: string,
    hidden: ReadonlySet<string> = all.hidden,
    bodyOf: (seq: number) => string | null = () => null,
    hits: ReadonlySet<number> = none,
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

const none: ReadonlySet<number> = new Set();

const wordsOf = (query: string): string[] =>
  query
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");

function matches(row: EventRow, words: string[], bodyOf: (seq: number) => string | null): boolean {
  const text = `${row.type} ${row.title} ${row.span_id ?? ""}`.toLowerCase();
  const missing = words.filter((word) => !text.includes(word));
  if (missing.length === 0) return true;
  // The payload is the envelope's last member; an id or a time is nothing that somebody wrote.
  const whole = bodyOf(row.seq);
  const body = whole?.slice(whole.indexOf('"payload":') + 10).toLowerCase();
  return body !== undefined && missing.every((word) => body.includes(word));
}

/** A row of the waterfall. `position` and `siblings` are for screen readers. */
export interface SpanRow {
  span: Span;
  depth: number;
  position: number;
  siblings: number;
  isOpen: boolean;
  hasChildren: boolean;
}

/** What decides which spans are rows. */
export interface Shown {
  closed: ReadonlySet<number>;
  query: string;
  /** Kinds that are left out; what is below them stays. */
  hidden: ReadonlySet<string>;
  /** Events in which the server has found the query. */
  hits: ReadonlySet<number>;
}

export const all: Shown = { closed: new Set(), query: "", hidden: new Set(), hits: none };

/** How far up the tree it is looked whether a row is the last one. */
const steps_max = 500;

/**
 * The tree as rows, parents before children, closed ones skipped; with a query, matches and their parents. While
 * spans are only added at the end, the rows are only added too.
 */
export class SpanRows {
  #spans: Span[] = [];
  #depths: number[] = [];
  #tree: SpanTree | null = null;
  #shown: Shown = all;
  #counted = 0;
  #moves = 0;
  #kept: Set<number> | null = null;

  get length(): number {
    return this.#spans.length;
  }

  update(tree: SpanTree, shown: Shown): void {
    const isSame = tree === this.#tree && shown === this.#shown && tree.moves === this.#moves;
    if (isSame && tree.spans.length === this.#counted) return;
    const isAdded = isSame && shown.query === "" && this.#counted > 0;
    const first = this.#counted;
    this.#tree = tree;
    this.#shown = shown;
    this.#moves = tree.moves;
    this.#counted = tree.spans.length;
    if (!isAdded || !tree.spans.slice(first).every((span) => this.#append(span))) this.#build();
  }

  spanAt(index: number): Span | undefined {
    return this.#spans[index];
  }

  at(index: number): SpanRow | undefined {
    const [span, tree] = [this.#spans[index], this.#tree];
    if (span === undefined || tree === null) return undefined;
    return {
      span,
      depth: this.#depths[index] ?? 0,
      position: span.place + 1,
      siblings: Math.max(1, tree.siblingsOf(span).length),
      isOpen: this.#isOpen(span),
      hasChildren: tree.childrenOf(span).length > 0,
    };
  }

  /** The row that has the event; -1 when none has. */
  indexOf(seq: number): number {
    return this.#spans.findIndex((span) => span.start_seq === seq || span.end_seq === seq);
  }

  #isOpen(span: Span): boolean {
    return this.#kept !== null || !this.#shown.closed.has(span.index);
  }

  /** Adds the row of a span that is below the last row or beside it; false when it belongs in between. */
  #append(span: Span): boolean {
    const tree = this.#tree as SpanTree;
    const parent = tree.parentOf(span);
    let depth = 0;
    let steps = 0;
    for (let above = parent; above !== null; above = tree.parentOf(above)) {
      // Producers can name each other's spans as parents, in a circle.
      if ((steps += 1) > steps_max) return false;
      if (this.#shown.closed.has(above.index)) return true;
      if (!this.#shown.hidden.has(above.kind)) depth += 1;
    }
    if (this.#shown.hidden.has(span.kind)) return true;
    let last: Span | null = this.#spans.at(-1) ?? null;
    for (; last !== null && last !== parent && steps <= 2 * steps_max; steps += 1) last = tree.parentOf(last);
    if (last !== parent) return false;
    this.#spans.push(span);
    this.#depths.push(depth);
    return true;
  }

  #build(): void {
    const tree = this.#tree as SpanTree;
    const words = wordsOf(this.#shown.query);
    this.#kept = words.length === 0 ? null : keptSpans(tree, words, this.#shown.hits);
    this.#spans = [];
    this.#depths = [];
    // An own stack: a chain of spans may be deeper than the engine's.
    const stack: { siblings: readonly Span[]; next: number; depth: number }[] = [
      { siblings: tree.roots(), next: 0, depth: 0 },
    ];
    while (stack.length > 0) {
      const frame = stack.at(-1) as (typeof stack)[number];
      const span = frame.siblings[frame.next];
      frame.next += 1;
      if (span === undefined) {
        stack.pop();
        continue;
      }
      if (this.#kept !== null && !this.#kept.has(span.index)) continue;
      const isHidden = this.#shown.hidden.has(span.kind);
      if (!isHidden) {
        this.#spans.push(span);
        this.#depths.push(frame.depth);
      }
      const children = tree.childrenOf(span);
      if (children.length > 0 && this.#isOpen(span))
        stack.push({ siblings: children, next: 0, depth: frame.depth + (isHidden ? 0 : 1) });
    }
  }
}

function keptSpans(tree: SpanTree, words: string[], hits: ReadonlySet<number>): Set<number> {
  const kept = new Set<number>();
  for (const span of tree.spans) {
    const text =
      `${span.kind} ${span.name} ${span.preview} ${span.error} ${span.span_id} ${span.status}`.toLowerCase();
    const isHit = hits.has(span.start_seq) || hits.has(span.end_seq ?? 0);
    if (!isHit && !words.every((word) => text.includes(word))) continue;
    for (let at: Span | null = span; at !== null && !kept.has(at.index); at = tree.parentOf(at)) {
      kept.add(at.index);
    }
  }
  return kept;
}
