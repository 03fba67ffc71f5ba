import type { TimelineSpan } from "@runreel/client";
import type { Pair } from "../feed/align";
import type { Side } from "../feed/compare.svelte";
import { tookOf } from "../feed/runrow";
import { count, duration } from "../ui/format";
import { money } from "../ui/money";

/** A number of both runs; null where it is not known. */
export interface Figure {
  name: string;
  a: number | null;
  b: number | null;
  form: (value: number) => string;
  /** Whether more of it is worse; null when it is neither. */
  isWorse: boolean | null;
}

/** The difference for display: `+1.2 s (+30 %)`; empty when there is none, or one is not known. */
export function deltaText({ a, b, form }: Pick<Figure, "a" | "b" | "form">): string {
  if (a === null || b === null || a === b) return "";
  const sign = b > a ? "+" : "−";
  const part = a === 0 ? "" : ` (${sign}${Math.round((100 * Math.abs(b - a)) / Math.abs(a))} %)`;
  return `${sign}${form(Math.abs(b - a))}${part}`;
}

/** How a difference is shown. */
export function deltaTone({ a, b, isWorse }: Pick<Figure, "a" | "b" | "isWorse">): "good" | "bad" | "plain" {
  if (a === null || b === null || a === b || isWorse === null) return "plain";
  return b > a === isWorse ? "bad" : "good";
}

const counted = (spans: readonly TimelineSpan[], is: (span: TimelineSpan) => boolean) =>
  spans.filter(is).length;

/** The figures by which two runs are compared. */
export function figuresOf(a: Side, b: Side): Figure[] {
  const figure = (
    name: string,
    of: (side: Side) => number | null | undefined,
    form: (value: number) => string,
    isWorse: boolean | null,
  ): Figure => ({ name, a: of(a) ?? null, b: of(b) ?? null, form, isWorse });
  const summary = (side: Side) => side.timeline.summary;
  const all = [
    figure("duration", (side) => tookOf(side.run, Date.parse(side.run.last_event_at)), duration, true),
    figure("in tools", (side) => summary(side).tool_ms, duration, true),
    figure("in models", (side) => summary(side).model_ms, duration, true),
    figure("waiting", (side) => summary(side).waiting_ms, duration, null),
    figure("tokens in", (side) => side.run.usage?.input_tokens, count, true),
    figure("tokens out", (side) => side.run.usage?.output_tokens, count, null),
    figure("cost", (side) => side.run.usage?.cost_usd, money, true),
    figure("steps", (side) => Math.max(0, side.timeline.spans.length - 1), count, null),
    figure(
      "calls of tools",
      (side) => counted(side.timeline.spans, (span) => span.kind === "tool"),
      count,
      null,
    ),
    figure(
      "failed steps",
      (side) => counted(side.timeline.spans, (span) => span.status === "failed" && span.kind !== "run"),
      count,
      true,
    ),
    figure("events", (side) => side.run.last_seq, count, null),
  ];
  return all.filter(({ a, b }) => (a ?? 0) !== 0 || (b ?? 0) !== 0);
}

/** The tokens of a step's model call; null when it has none. */
export function tokensOf(side: Side | null, span: TimelineSpan | null): number | null {
  const call = span?.end_seq ? side?.calls.get(span.end_seq) : undefined;
  return call === undefined ? null : (call.input_tokens ?? 0) + (call.output_tokens ?? 0);
}

export function costOf(side: Side | null, span: TimelineSpan | null): number | null {
  return (span?.end_seq ? side?.calls.get(span.end_seq)?.cost_usd : null) ?? null;
}

/** The longest step below the runs themselves, which has a full bar. */
export function longestOf(pairs: readonly Pair[]): number {
  let longest = 0;
  for (const { a, b, depth } of pairs)
    if (depth > 0) longest = Math.max(longest, a?.duration_ms ?? 0, b?.duration_ms ?? 0);
  return longest;
}
