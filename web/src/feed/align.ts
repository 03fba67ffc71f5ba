import type { TimelineSpan } from "@runreel/client";
import { commonPlaces } from "./lcs";

/** A step of both runs, or of only one of them. */
export interface Pair {
  a: TimelineSpan | null;
  b: TimelineSpan | null;
  depth: number;
}

/**
 * The key by which two steps are the same. A span without a name has its id as the name, which no step of the other
 * run has unless it is a real name.
 */
function keyOf(span: TimelineSpan, others: ReadonlySet<string>): string {
  // The spans of the runs themselves match, whatever their names.
  const isNamed = span.kind !== "run" && (span.name !== span.span_id || others.has(span.name));
  return isNamed ? `${span.kind} ${span.name}` : span.kind;
}

/**
 * The steps of two runs side by side: below each pair of parents, the longest common sequence of kinds and names.
 * Every span of either run is in exactly one pair, and those of a run are in the order of its tree.
 */
export function alignSpans(a: readonly TimelineSpan[], b: readonly TimelineSpan[]): Pair[] {
  const [treeA, treeB] = [childrenOf(a), childrenOf(b)];
  const [namesA, namesB] = [a, b].map((spans) => new Set(spans.map((span) => span.name)));
  const keyInA = (at: number) => keyOf(a[at] as TimelineSpan, namesB ?? new Set());
  const keyInB = (at: number) => keyOf(b[at] as TimelineSpan, namesA ?? new Set());
  const pairs: Pair[] = [];
  // A stack of what is still to be placed: trees may be deeper than the call stack.
  const todo: Placed[] = [];
  const align = (inA: readonly number[], inB: readonly number[], depth: number) => {
    const placed: Placed[] = [];
    let [x, y] = [0, 0];
    const common = commonPlaces(inA.map(keyInA), inB.map(keyInB));
    for (const [nextX, nextY] of [...common, [inA.length, inB.length] as [number, number]]) {
      for (; x < nextX; x += 1) placed.push([inA[x], undefined, depth]);
      for (; y < nextY; y += 1) placed.push([undefined, inB[y], depth]);
      if (x < inA.length && y < inB.length) placed.push([inA[x], inB[y], depth]);
      x += 1;
      y += 1;
    }
    for (const each of placed.reverse()) todo.push(each);
  };
  align(treeA.get(top) ?? [], treeB.get(top) ?? [], 0);
  for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
    const [x, y, depth] = next;
    const [one, other] = [x === undefined ? undefined : a[x], y === undefined ? undefined : b[y]];
    pairs.push({ a: one ?? null, b: other ?? null, depth });
    align(treeA.get(x ?? none) ?? [], treeB.get(y ?? none) ?? [], depth + 1);
  }
  return pairs;
}

/** The indexes of two matching steps, or of one without a match, and their depth. */
type Placed = [number | undefined, number | undefined, number];

/** The parent key of outermost spans, and a key that no span has. */
const top = -1;
const none = -2;

/** The indexes of the spans by that of their parent: the span with the parent's id that began before. */
function childrenOf(spans: readonly TimelineSpan[]): Map<number, number[]> {
  const byId = new Map<string, number>();
  const children = new Map<number, number[]>();
  const root = spans[0]?.kind === "run" ? 0 : top;
  spans.forEach((span, at) => {
    const named = span.parent_span_id ? byId.get(span.parent_span_id) : undefined;
    const parent = at === 0 ? top : (named ?? root);
    const siblings = children.get(parent);
    if (siblings === undefined) children.set(parent, [at]);
    else siblings.push(at);
    if (!byId.has(span.span_id)) byId.set(span.span_id, at);
  });
  return children;
}

/** Whether a pair differs: in its status, in its duration or, if it is one of `changed`, in its contents. */
export function differs(pair: Pair, changed: ReadonlySet<Pair>): boolean {
  const { a, b } = pair;
  if (a === null || b === null || a.status !== b.status || changed.has(pair)) return true;
  const [one, other] = [a.duration_ms ?? 0, b.duration_ms ?? 0];
  return Math.abs(one - other) > notable_ms && Math.max(one, other) > 1.5 * Math.min(one, other);
}

/** A smaller difference is noise, whatever its ratio. */
const notable_ms = 100;
