import type { Span, SpanTree } from "../feed/tree";
import { barOf, type Window } from "./geometry";

/** The number of depths that are drawn; deeper spans are in the last one. */
export const lanes = 6;

/** Kinds by their number in the lanes; 0 is nothing. A higher number covers a lower one, a failure everything. */
export const drawnKinds = [
  "",
  "run",
  "step",
  "tool",
  "message",
  "reasoning",
  "worker",
  "other",
  "failed",
] as const;
const numbers = new Map<string, number>(drawnKinds.map((kind, at) => [kind, at]));
const other = numbers.get("other") as number;
const failed = numbers.get("failed") as number;

/**
 * The whole run in so many columns: for each lane and each column the number of the kind that is drawn there. So the
 * cost of drawing does not grow with the number of spans.
 */
export function lanesOf(tree: SpanTree, window: Window, columns: number): Uint8Array[] {
  const found = Array.from({ length: lanes }, () => new Uint8Array(columns));
  const depths = new Uint8Array(tree.spans.length);
  for (const span of tree.spans) {
    const depth = depthOf(span, tree, depths);
    depths[span.index] = depth;
    const lane = found[depth] as Uint8Array;
    const number = span.status === "failed" && depth > 0 ? failed : (numbers.get(span.kind) ?? other);
    const { left, width } = barOf(span.start_ms, span.end_ms, window);
    const from = Math.min(columns - 1, Math.floor((left / 100) * columns));
    const to = Math.min(columns - 1, Math.max(from, Math.ceil(((left + width) / 100) * columns) - 1));
    for (let column = from; column <= to; column += 1) {
      if ((lane[column] as number) < number) lane[column] = number;
    }
  }
  return found;
}

function depthOf(span: Span, tree: SpanTree, depths: Uint8Array): number {
  const parent = tree.parentOf(span);
  if (parent === null) return 0;
  return Math.min(lanes - 1, (depths[parent.index] ?? 0) + 1);
}

/** The bars of a lane: stretches of the same number. */
export function barsIn(lane: Uint8Array): { from: number; to: number; number: number }[] {
  const bars: { from: number; to: number; number: number }[] = [];
  let from = 0;
  for (let column = 1; column <= lane.length; column += 1) {
    if (lane[column] === lane[from]) continue;
    const number = lane[from] ?? 0;
    if (number > 0) bars.push({ from, to: column, number });
    from = column;
  }
  return bars;
}
