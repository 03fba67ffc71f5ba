import type { EventRow } from "../feed/fold";
import type { Span, SpanTree } from "../feed/tree";

/** Rows of the log that match a filter; looks at each row once while rows are only added. */
export class EventFilter {
  #query = "";
  #looked = 0;
  #found: number[] = [];
  #rows: readonly EventRow[] | null = null;

  /** Indices into `rows`, or `null` when everything matches. */
  update(rows: readonly EventRow[], query: string): readonly number[] | null {
    if (query !== this.#query || rows !== this.#rows) {
      this.#query = query;
      this.#rows = rows;
      this.#looked = 0;
      this.#found = [];
    }
    const words = wordsOf(query);
    if (words.length === 0) return null;
    for (; this.#looked < rows.length; this.#looked += 1) {
      if (matches(rows[this.#looked] as EventRow, words)) this.#found.push(this.#looked);
    }
    return this.#found;
  }
}

const wordsOf = (query: string): string[] =>
  query
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");

function matches(row: EventRow, words: string[]): boolean {
  const text = `${row.type} ${row.title} ${row.span_id ?? ""}`.toLowerCase();
  return words.every((word) => text.includes(word));
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

/** The tree as rows, parents before children, closed ones skipped; with a query, matches and their parents. */
export function spanRows(tree: SpanTree, closed: ReadonlySet<number>, query: string): SpanRow[] {
  const words = wordsOf(query);
  const kept = words.length === 0 ? null : keptSpans(tree, words);
  const rows: SpanRow[] = [];
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
    if (kept !== null && !kept.has(span.index)) continue;
    const children = tree.childrenOf(span);
    const isOpen = kept !== null || !closed.has(span.index);
    rows.push({
      span,
      depth: frame.depth,
      position: frame.next,
      siblings: frame.siblings.length,
      isOpen,
      hasChildren: children.length > 0,
    });
    if (isOpen && children.length > 0) stack.push({ siblings: children, next: 0, depth: frame.depth + 1 });
  }
  return rows;
}

function keptSpans(tree: SpanTree, words: string[]): Set<number> {
  const kept = new Set<number>();
  for (const span of tree.spans) {
    const text = `${span.kind} ${span.name} ${span.span_id} ${span.status}`.toLowerCase();
    if (!words.every((word) => text.includes(word))) continue;
    for (let at: Span | null = span; at !== null && !kept.has(at.index); at = tree.parentOf(at)) {
      kept.add(at.index);
    }
  }
  return kept;
}
