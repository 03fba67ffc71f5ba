import type { SpanStatus } from "@runreel/client";

/** A bar of the waterfall. Times are milliseconds since the epoch; `end_ms` is null while it runs. */
export interface Span {
  /** Its index in the order of starts, by which the tree is linked, since producers may repeat a span_id. */
  index: number;
  /** Its index among its siblings. */
  place: number;
  span_id: string;
  parent_span_id: string | null;
  kind: string;
  name: string;
  status: SpanStatus;
  start_seq: number;
  end_seq: number | null;
  start_ms: number;
  end_ms: number | null;
  /** Its own duration, without the time of waiting for a person; null while it runs. */
  took_ms: number | null;
  child_run_id: string | null;
  /** Its arguments in short, and its error; empty when there are none. */
  preview: string;
  error: string;
  /** If it stands for a stretch of brief spans: whether these are shown. Absent for a real span. */
  isOpen?: boolean;
}

export type NewSpan = Omit<Span, "index" | "place" | "preview" | "error" | "isOpen"> & { preview?: string };

/** The key of spans without a parent in this run. */
const top = -1;

/**
 * Spans in the order of their start, and their tree. The links are kept while spans arrive, so an event of
 * a long live run costs what it costs in a short one.
 */
export class SpanTree {
  readonly spans: Span[] = [];
  /** Grows when the tree changes; a span that merely ends does not change it. */
  shape = 0;
  /** Grows when existing spans moved in the tree. */
  moves = 0;
  root: Span | null = null;
  readonly #byId = new Map<string, Span>();
  readonly #children = new Map<number, Span[]>();
  readonly #missingParents = new Set<string>();
  /** The spans whose parent is a descendant of theirs. */
  readonly #isCut = new Set<number>();

  add(from: NewSpan): Span {
    const span: Span = { preview: "", error: "", ...from, place: 0, index: this.spans.length };
    this.spans.push(span);
    this.shape += 1;
    if (span.kind === "run" && this.root === null) this.#takeRoot(span);
    else this.#link(span);
    // Of spans with the same id, the first is the parent that others name.
    if (!this.#byId.has(span.span_id)) this.#byId.set(span.span_id, span);
    if (this.#missingParents.delete(span.span_id)) this.#adopt(span);
    return span;
  }

  childrenOf(span: Span): readonly Span[] {
    return this.#children.get(span.index) ?? [];
  }

  /** The run's own span; without one (retention took the beginning) the spans that have no parent. */
  roots(): readonly Span[] {
    return this.root === null ? (this.#children.get(top) ?? []) : [this.root];
  }

  parentOf(span: Span): Span | null {
    if (span === this.root) return null;
    if (this.#isCut.has(span.index)) return this.root;
    const named = span.parent_span_id === null ? undefined : this.#byId.get(span.parent_span_id);
    return named === undefined || named === span ? this.root : named;
  }

  siblingsOf(span: Span): readonly Span[] {
    return this.#children.get(this.parentOf(span)?.index ?? top) ?? [];
  }

  #takeRoot(span: Span): void {
    this.root = span;
    this.moves += 1;
    const before = this.#children.get(top) ?? [];
    this.#children.delete(top);
    this.#children.set(span.index, before);
  }

  #link(span: Span): void {
    const parent = this.parentOf(span);
    const isMissing = span.parent_span_id !== null && !this.#byId.has(span.parent_span_id);
    if (isMissing) this.#missingParents.add(span.parent_span_id as string);
    const siblings = this.#children.get(parent?.index ?? top);
    if (siblings === undefined) this.#children.set(parent?.index ?? top, [span]);
    else span.place = siblings.push(span) - 1;
  }

  /** The indexes of a span and its ancestors. */
  #above(span: Span): Set<number> {
    const above = new Set<number>();
    for (let at: Span | null = span; at !== null && !above.has(at.index); at = this.parentOf(at))
      above.add(at.index);
    return above;
  }

  /** Moves children that were written before their parent below it. Rare: producers write parents first. */
  #adopt(parent: Span): void {
    const key = this.root?.index ?? top;
    const strays = this.#children.get(key) ?? [];
    const above = this.#above(parent);
    const named = strays.filter((span) => span.parent_span_id === parent.span_id && span !== parent);
    // A link that would close a cycle is cut.
    for (const span of named) if (above.has(span.index)) this.#isCut.add(span.index);
    const mine = named.filter((span) => !above.has(span.index));
    const others = strays.filter((span) => !mine.includes(span));
    for (const list of [others, mine]) list.forEach((span, place) => (span.place = place));
    this.#children.set(key, others);
    this.#children.set(parent.index, mine);
    this.moves += 1;
  }
}
