import type { Histogram } from "../api/runlists";
import { timeIn } from "../ui/time";

/** The order in which statuses are stacked, from the bottom up, so that successes do not hide failures. */
export const stackedStatuses = [
  "failed",
  "interrupted",
  "waiting",
  "running",
  "queued",
  "cancelled",
  "completed",
];

/** A part of a bar, from `from` to `to` of the picture's height. */
export interface Part {
  status: string;
  count: number;
  from: number;
  to: number;
}

/** The runs that were created in one period. */
export interface Bar {
  at_ms: number;
  until_ms: number;
  total: number;
  parts: Part[];
}

export interface Bars {
  bars: Bar[];
  /** The height of the highest bar, in runs. */
  most: number;
}

/** All buckets of the period, also those without runs. `statuses`: only these; all when empty. */
export function barsOf(histogram: Histogram, statuses: ReadonlySet<string> = new Set()): Bars {
  const { bucket_ms } = histogram;
  const first_ms = Math.floor(Date.parse(histogram.since) / bucket_ms) * bucket_ms;
  const count = Math.max(1, Math.ceil((Date.parse(histogram.until) - first_ms) / bucket_ms));
  const byTime = new Map(histogram.buckets.map((bucket) => [Date.parse(bucket.at), bucket.counts]));
  const counted = Array.from({ length: count }, (_, at) => {
    const counts = byTime.get(first_ms + at * bucket_ms) ?? {};
    const shown = stackedStatuses.filter((status) => statuses.size === 0 || statuses.has(status));
    return shown.map((status) => ({ status, count: counts[status] ?? 0 })).filter((part) => part.count > 0);
  });
  const totals = counted.map((parts) => parts.reduce((sum, part) => sum + part.count, 0));
  const most = Math.max(0, ...totals);
  const bars = counted.map((parts, at) => {
    let below = 0;
    return {
      at_ms: first_ms + at * bucket_ms,
      until_ms: first_ms + (at + 1) * bucket_ms,
      total: totals[at] ?? 0,
      parts: parts.map((part) => {
        const from = below / most;
        below += part.count;
        return { ...part, from, to: below / most };
      }),
    };
  });
  return { bars, most };
}

/** The period between two bars, in either order, as a filter of the address. */
export function rangeOf(
  bars: readonly Bar[],
  one: number,
  other: number,
): { since: string; until: string } | null {
  const first = bars[Math.min(one, other)];
  const last = bars[Math.max(one, other)];
  if (first === undefined || last === undefined) return null;
  return { since: new Date(first.at_ms).toISOString(), until: new Date(last.until_ms).toISOString() };
}

const day_ms = 86_400_000;

/** The bars that get a time label, and its text. */
export function labelsOf(bars: readonly Bar[], labels_max: number): { at: number; text: string }[] {
  const every = Math.max(1, Math.ceil(bars.length / Math.max(1, labels_max)));
  const first = bars[0];
  if (first === undefined) return [];
  const isDays = first.until_ms - first.at_ms >= day_ms;
  const isLong = (bars.at(-1)?.until_ms ?? 0) - first.at_ms > day_ms;
  const isTiny = first.until_ms - first.at_ms < 60_000;
  const text = (ms: number) =>
    [isDays || isLong ? timeIn("date", ms) : "", isDays ? "" : timeIn(isTiny ? "clock" : "hour", ms)]
      .join(" ")
      .trim();
  // The last bars have no room to their right.
  const isWritten = (at: number) => at % every === 0 && at + every / 2 <= bars.length;
  return bars.flatMap((bar, at) => (isWritten(at) ? [{ at, text: text(bar.at_ms) }] : []));
}
