import type { Span } from "../feed/tree";
import type { FlatRows } from "./rows";

/** A span that is shorter than this share of the run is brief. */
const brief_share = 0.01;
/** The kinds that are folded; messages, interrupts and workers are shown one by one. */
const brief_kinds = new Set(["step", "tool", "reasoning"]);
const stretch_min = 2;
const names_max = 3;

/**
 * Folds each stretch of brief spans that succeeded, one below the other, into one row. `opened` has the indices of the
 * stretches that are open.
 */
export function foldBrief(rows: FlatRows, opened: ReadonlySet<number>): FlatRows {
  const { spans, depths, runs } = rows;
  const folded: FlatRows = { spans: [], depths: [], runs: [] };
  const push = (span: Span, depth: number, run_id: string | null) => {
    folded.spans.push(span);
    folded.depths.push(depth);
    folded.runs.push(run_id);
  };
  const brief_ms = lengthOf(spans) * brief_share;
  const isBrief = (at: number) => {
    const span = spans[at];
    if (span === undefined || runs[at] !== null || (depths[at + 1] ?? 0) > (depths[at] ?? 0)) return false;
    const isGood = span.status === "completed" && span.child_run_id === null && brief_kinds.has(span.kind);
    return isGood && (span.took_ms ?? Infinity) < brief_ms;
  };
  for (let at = 0; at < spans.length;) {
    const depth = depths[at] ?? 0;
    let end = at;
    while (depths[end] === depth && isBrief(end)) end += 1;
    const isStretch = end - at >= stretch_min;
    const stretch = isStretch ? stretchOf(spans.slice(at, end), opened) : null;
    if (stretch !== null) push(stretch, depth, null);
    const inside = stretch === null ? 0 : 1;
    for (end = Math.max(end, at + 1); at < end; at += 1)
      if (stretch === null || stretch.isOpen) push(spans[at] as Span, depth + inside, runs[at] ?? null);
  }
  return folded;
}

function lengthOf(spans: readonly Span[]): number {
  let [from_ms, to_ms] = [Infinity, -Infinity];
  for (const { start_ms, end_ms } of spans) {
    from_ms = Math.min(from_ms, start_ms);
    to_ms = Math.max(to_ms, end_ms ?? start_ms);
  }
  return to_ms - from_ms;
}

function stretchOf(brief: readonly Span[], opened: ReadonlySet<number>): Span {
  const [first] = brief as [Span];
  // Negative, unlike those of the spans.
  const index = -2 - first.index;
  const names = [...new Set(brief.slice(0, 100).map(({ name }) => name))];
  return {
    ...first,
    index,
    span_id: "",
    kind: "",
    name: `${brief.length} folded`,
    end_seq: null,
    end_ms: brief.reduce((end, { end_ms }) => Math.max(end, end_ms ?? end), first.start_ms),
    took_ms: brief.reduce((sum, { took_ms }) => sum + (took_ms ?? 0), 0),
    preview: names.slice(0, names_max).join(", ") + (names.length > names_max ? " …" : ""),
    isOpen: opened.has(index),
  };
}
