import type { Span, SpanTree } from "../feed/tree";
import { spelled } from "./spelling";

/** A row of the waterfall. `position` and `siblings` are for screen readers. */
export interface SpanRow {
  span: Span;
  /** The child run of the span; null for the run itself. */
  run_id: string | null;
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
  /** The trees of child runs that are shown below the spans that stand for them. */
  below: ReadonlyMap<string, SpanTree>;
  /** Makes one row of a stretch of brief spans; null when each has its own. */
  fold: ((rows: FlatRows, closed: ReadonlySet<number>) => FlatRows) | null;
}

/** Rows from top to bottom; `runs` has the child run of each, null for the run itself. */
export interface FlatRows {
  spans: Span[];
  depths: number[];
  runs: (string | null)[];
}

export const all: Shown = {
  closed: new Set(),
  query: "",
  hidden: new Set(),
  hits: new Set(),
  below: new Map(),
  fold: null,
};

/** The words of a query, all of which a row has to contain. */
export const wordsOf = (query: string): string[] =>
  spelled(query)
    .split(/\s+/)
    .filter((word) => word !== "");

/** How many steps up the tree it is checked whether a row is the last one. */
const steps_max = 500;

/**
 * The tree as rows, parents before children, closed ones skipped; with a query, matches and their parents. While
 * spans are only added at the end, the rows are only added too.
 */
export class SpanRows {
  #spans: Span[] = [];
  #depths: number[] = [];
  #runs: (string | null)[] = [];
  #tree: SpanTree | null = null;
  #shown: Shown = all;
  #counted = 0;
  #moves = 0;
  /** The number of spans when the rows were last built as a whole. */
  #built = 0;
  /** With a query, the spans that match it, and these with their parents. */
  #found: ReadonlySet<number> = all.closed;
  #kept: Set<number> | null = null;

  get length(): number {
    return this.#spans.length;
  }

  update(tree: SpanTree, shown: Shown): void {
    const isSame = tree === this.#tree && shown === this.#shown && tree.moves === this.#moves;
    if (isSame && tree.spans.length === this.#counted) return;
    // While a long run is live, its stretches are computed only now and then.
    const isFresh = shown.fold === null || tree.spans.length - this.#built <= this.#built >> 5;
    const isAdded = isSame && isFresh && shown.query === "" && shown.below.size === 0 && this.#counted > 0;
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

  /** Whether the row itself matches the query. */
  isHit(index: number): boolean {
    return this.#found.has(this.#spans[index]?.index ?? -1) && this.#runs[index] === null;
  }

  at(index: number): SpanRow | undefined {
    const span = this.#spans[index];
    const run_id = this.#runs[index] ?? null;
    const tree = run_id === null ? this.#tree : this.#shown.below.get(run_id);
    if (span === undefined || tree === null || tree === undefined) return undefined;
    return {
      span,
      run_id,
      depth: this.#depths[index] ?? 0,
      position: span.place + 1,
      siblings: Math.max(1, tree.siblingsOf(span).length),
      isOpen: span.isOpen ?? (this.#isOpen(span, tree) || this.#shown.below.has(span.child_run_id ?? "")),
      hasChildren:
        span.isOpen !== undefined || span.child_run_id !== null || tree.childrenOf(span).length > 0,
    };
  }

  /** The index of the event's row, not of an open stretch around it; -1 when there is none. */
  indexOf(seq: number, run_id: string | null = null): number {
    return this.#spans.findIndex(
      (span, at) =>
        (span.start_seq === seq || span.end_seq === seq) &&
        span.isOpen !== true &&
        (this.#runs[at] ?? null) === run_id,
    );
  }

  /** Whether the spans below it are shown, if there are any. Those of other runs can only be opened as a whole. */
  #isOpen(span: Span, tree: SpanTree): boolean {
    if (tree.childrenOf(span).length === 0) return false;
    return this.#kept !== null || tree !== this.#tree || !this.#shown.closed.has(span.index);
  }

  /** Adds the row of a span that belongs after the last row; false when it belongs in between. */
  #append(span: Span): boolean {
    const tree = this.#tree as SpanTree;
    const parent = tree.parentOf(span);
    let depth = 0;
    let steps = 0;
    for (let above = parent; above !== null; above = tree.parentOf(above)) {
      // Producers can name each other's spans as parents, in a cycle.
      if ((steps += 1) > steps_max) return false;
      if (this.#shown.closed.has(above.index)) return true;
      if (!this.#shown.hidden.has(above.kind)) depth += 1;
    }
    if (this.#shown.hidden.has(span.kind)) return true;
    let last: Span | null = this.#spans.at(-1) ?? null;
    for (; last !== null && last !== parent && steps <= 2 * steps_max; steps += 1) last = tree.parentOf(last);
    if (last !== parent) return false;
    this.#push(span, depth, null);
    return true;
  }

  #build(): void {
    const tree = this.#tree as SpanTree;
    const words = wordsOf(this.#shown.query);
    this.#built = tree.spans.length;
    this.#found = words.length === 0 ? all.closed : foundSpans(tree, words, this.#shown.hits);
    this.#kept = words.length === 0 ? null : withParents(tree, this.#found);
    this.#spans = [];
    this.#depths = [];
    this.#runs = [];
    // An explicit stack: a chain of spans may be deeper than the engine's.
    const stack: Frame[] = [{ tree, run_id: null, siblings: tree.roots(), next: 0, depth: 0 }];
    while (stack.length > 0) {
      const frame = stack.at(-1) as Frame;
      const span = frame.siblings[frame.next];
      frame.next += 1;
      if (span === undefined) {
        stack.pop();
        continue;
      }
      const isOwn = frame.run_id === null;
      if (isOwn && this.#kept !== null && !this.#kept.has(span.index)) continue;
      const isHidden = this.#shown.hidden.has(span.kind);
      if (!isHidden) this.#push(span, frame.depth, frame.run_id);
      const depth = frame.depth + (isHidden ? 0 : 1);
      const run_id = span.child_run_id;
      const below = run_id === null ? undefined : this.#shown.below.get(run_id);
      // The span itself replaces the child run's own bar. A log can name any run as its child, also in a cycle.
      if (below !== undefined && run_id !== null && stack.every((each) => each.run_id !== run_id)) {
        const siblings = below.root === null ? below.roots() : below.childrenOf(below.root);
        stack.push({ tree: below, run_id, siblings, next: 0, depth });
      }
      if (this.#isOpen(span, frame.tree))
        stack.push({ ...frame, siblings: frame.tree.childrenOf(span), next: 0, depth });
    }
    if (this.#shown.fold === null || this.#kept !== null) return;
    const rows = { spans: this.#spans, depths: this.#depths, runs: this.#runs };
    const folded = this.#shown.fold(rows, this.#shown.closed);
    [this.#spans, this.#depths, this.#runs] = [folded.spans, folded.depths, folded.runs];
  }

  #push(span: Span, depth: number, run_id: string | null): void {
    this.#spans.push(span);
    this.#depths.push(depth);
    this.#runs.push(run_id);
  }
}

interface Frame {
  tree: SpanTree;
  run_id: string | null;
  siblings: readonly Span[];
  next: number;
  depth: number;
}

function foundSpans(tree: SpanTree, words: string[], hits: ReadonlySet<number>): Set<number> {
  const found = new Set<number>();
  for (const span of tree.spans) {
    const text = spelled(
      `${span.kind} ${span.name} ${span.preview} ${span.error} ${span.span_id} ${span.status}`,
    );
    const isHit = hits.has(span.start_seq) || hits.has(span.end_seq ?? 0);
    if (isHit || words.every((word) => text.includes(word))) found.add(span.index);
  }
  return found;
}

function withParents(tree: SpanTree, found: ReadonlySet<number>): Set<number> {
  const kept = new Set<number>();
  for (const index of found)
    for (let at = tree.spans[index] ?? null; at !== null && !kept.has(at.index); at = tree.parentOf(at))
      kept.add(at.index);
  return kept;
}
