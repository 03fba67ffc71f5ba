import type { SpanStatus } from "@runreel/client";

/** A bar of the waterfall. Times are milliseconds since the epoch; `end_ms` is null while it runs. */
export interface Span {
  /** Its place in the order of starts; what the tree is linked by, since producers may repeat a span_id. */
  index: number;
  /** Its place among those below the same parent. */
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
  /** What it took by its own account, without the time in which a person was waited for; null while it runs. */
  took_ms: number | null;
  child_run_id: string | null;
  /** Its arguments in a few words, and why it failed; empty when there is nothing to say. */
  preview: string;
  error: string;
  /** Whether the brief ones are shown that it stands for; nothing when it is a span and no stretch of them. */
  isOpen?: boolean;
}

export type NewSpan = Omit<Span, "index" | "place" | "preview" | "error" | "isOpen"> & { preview?: string };

/** The key of spans that hang below nothing in this run. */
const top = -1;

/**
 * Spans in the order of their start, and their tree. The links are kept while spans arrive, so an event of
 * a long live run costs what it costs in a short one.
 */
export class SpanTree {
  readonly spans: Span[] = [];
  /** Grows when the tree changes; a span that merely ends does not change it. */
  shape = 0;
  /** Grows when spans that were there moved in it. */
  moves = 0;
  root: Span | null = null;
  readonly #byId = new Map<string, Span>();
  readonly #children = new Map<number, Span[]>();
  readonly #missingParents = new Set<string>();
  /** Those whose parent hangs below them. */
  readonly #isCut = new Set<number>();

  add(from: NewSpan): Span {
    const span: Span = { preview: "", error: "", ...from, place: 0, index: this.spans.length };
    this.spans.push(span);
    this.shape += 1;
    if (span.kind === "run" && this.root === null) this.#takeRoot(span);
    else this.#link(span);
    // The first of a repeated id is the one that others call their parent.
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

  /** The spans that one hangs below, and itself. */
  #above(span: Span): Set<number> {
    const above = new Set<number>();
    for (let at: Span | null = span; at !== null && !above.has(at.index); at = this.parentOf(at))
      above.add(at.index);
    return above;
  }

  /** Children that were written before their parent move below it. Rare: producers write parents first. */
  #adopt(parent: Span): void {
    const key = this.root?.index ?? top;
    const strays = this.#children.get(key) ?? [];
    const above = this.#above(parent);
    const named = strays.filter((span) => span.parent_span_id === parent.span_id && span !== parent);
    // A link that would close a circle is none.
    for (const span of named) if (above.has(span.index)) this.#isCut.add(span.index);
    const mine = named.filter((span) => !above.has(span.index));
    const others = strays.filter((span) => !mine.includes(span));
    for (const list of [others, mine]) list.forEach((span, place) => (span.place = place));
    this.#children.set(key, others);
    this.#children.set(parent.index, mine);
    this.moves += 1;
  }
}
