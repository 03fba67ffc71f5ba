import type { Span, SpanTree } from "../feed/tree";

/** The next index for which `isMeant` holds, from the last one on to the first; `null` when there is none. */
export function nextOf(
  from: number | null,
  by: 1 | -1,
  count: number,
  isMeant: (index: number) => boolean,
): number | null {
  const begin = from ?? (by > 0 ? -1 : count);
  for (let step = 1; step <= count; step += 1) {
    const index = (((begin + by * step) % count) + count) % count;
    if (isMeant(index)) return index;
  }
  return null;
}

/** Where a failure began: from the run down, the last failed span below each failed one. */
export function causeIn(tree: SpanTree): Span | null {
  const isFailed = (span: Span) => span.status === "failed";
  let cause: Span | null = null;
  for (let below = tree.roots(); ;) {
    const next = below.findLast(isFailed);
    if (next === undefined) return cause;
    cause = next;
    below = tree.childrenOf(next);
  }
}
