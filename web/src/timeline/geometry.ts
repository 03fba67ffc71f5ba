/** Where a bar lies, as pure functions of times. Positions are percent of the drawn width. */

export interface Window {
  from_ms: number;
  to_ms: number;
  /** Stretches in which nothing happened, in order, each drawn with a small width of its own. */
  cuts?: readonly Lull[];
}

export interface Lull {
  from_ms: number;
  to_ms: number;
}

export interface Bar {
  left: number;
  width: number;
}

export interface Tick {
  at: number;
  /** Milliseconds after the window's start. */
  offset_ms: number;
}

/** What is drawn of a run is never shorter. */
const least_drawn_ms = 1;

/** What is drawn: from the run's start to its end or to now. */
export function windowOf(start_ms: number, end_ms: number | null, now_ms: number): Window {
  const to = end_ms ?? Math.max(now_ms, start_ms);
  return { from_ms: start_ms, to_ms: Math.max(to, start_ms + least_drawn_ms) };
}

/** The part of the width that a cut has. */
const cut_share = 0.05;
const cuts_max = 4;
/** A stretch is cut when it is that long, and that part of what is drawn. */
const cut_ms_min = 20_000;
const cut_share_min = 0.2;

const buckets = 256;

/** The stretches of a window in which nothing happened, as far as they are worth cutting out. */
export function cutsOf(events: readonly { at_ms: number }[], window: Window): Lull[] {
  const total = window.to_ms - window.from_ms;
  const least_ms = Math.max(cut_ms_min, total * cut_share_min);
  if (total < least_ms) return [];
  // Events are not in the order of their times: the first and the last one of each bucket are enough.
  const firsts = new Float64Array(buckets).fill(Infinity);
  const lasts = new Float64Array(buckets).fill(-Infinity);
  for (const { at_ms } of events) {
    if (at_ms < window.from_ms || at_ms > window.to_ms) continue;
    const at = Math.min(buckets - 1, Math.floor(((at_ms - window.from_ms) / total) * buckets));
    if (at_ms < (firsts[at] as number)) firsts[at] = at_ms;
    if (at_ms > (lasts[at] as number)) lasts[at] = at_ms;
  }
  const lulls: Lull[] = [];
  let from_ms = window.from_ms;
  for (let at = 0; at < buckets; at += 1) {
    const first = firsts[at] as number;
    if (first === Infinity) continue;
    if (first - from_ms >= least_ms) lulls.push({ from_ms, to_ms: first });
    from_ms = lasts[at] as number;
  }
  return lulls
    .sort((a, b) => b.to_ms - b.from_ms - (a.to_ms - a.from_ms))
    .slice(0, cuts_max)
    .sort((a, b) => a.from_ms - b.from_ms);
}

/** The window without them; whole when nothing else would be left of it, which they would squeeze. */
export function without(cuts: readonly Lull[], { from_ms, to_ms }: Window): Window {
  return { from_ms, to_ms, cuts: to_ms - from_ms - sumOf(cuts) < least_drawn_ms ? [] : cuts };
}

const sumOf = (cuts: readonly Lull[]) => cuts.reduce((sum, { from_ms, to_ms }) => sum + to_ms - from_ms, 0);

/** Where a time is drawn, 0 to 1. */
function placeOf(ms: number, { from_ms, to_ms, cuts = [] }: Window): number {
  let shown_ms = to_ms - from_ms;
  let past_ms = clampTo(ms, from_ms, to_ms) - from_ms;
  let past = 0;
  for (const cut of cuts) {
    const length = cut.to_ms - cut.from_ms;
    const inside = clampTo(ms - cut.from_ms, 0, length);
    shown_ms -= length;
    past_ms -= inside;
    past += (cut_share * inside) / length;
  }
  return clamp((past_ms / Math.max(shown_ms, 1e-6)) * (1 - cuts.length * cut_share) + past);
}

/** The time that is drawn at a place, 0 to 1. */
export function timeAt(place: number, window: Window): number {
  // Places grow with time, so halving finds it.
  let [low, high] = [window.from_ms, window.to_ms];
  for (let step = 0; step < 50; step += 1) {
    const middle = (low + high) / 2;
    if (placeOf(middle, window) < place) low = middle;
    else high = middle;
  }
  return high;
}

/** The bar of a stretch of time, cut to the window. A running stretch reaches to the window's end. */
export function barOf(start_ms: number, end_ms: number | null, window: Window): Bar {
  const from = placeOf(start_ms, window);
  const to = placeOf(end_ms ?? window.to_ms, window);
  return { left: percent(from), width: percent(Math.max(0, to - from)) };
}

/** A part of the window, moved so that it stays within the whole and keeps a length. */
export function zoomed(whole: Window, from_ms: number, to_ms: number): [number, number] {
  const total = whole.to_ms - whole.from_ms;
  const length = Math.min(total, Math.max(to_ms - from_ms, total / 100_000, 0.01));
  const from = clampTo(from_ms, whole.from_ms, whole.to_ms - length);
  return [from, from + length];
}

/** Round steps of 1, 2 or 5 after the origin, as many as fit into `ticks_max`; none where time is cut out. */
export function ticksOf(window: Window, ticks_max: number, origin_ms = window.from_ms): Tick[] {
  const cuts = window.cuts ?? [];
  const step = stepOf(window.to_ms - window.from_ms - sumOf(cuts), ticks_max);
  const ticks: Tick[] = [];
  let from = window.from_ms;
  for (const end of [...cuts, { from_ms: window.to_ms, to_ms: window.to_ms }]) {
    for (let count = Math.max(0, Math.ceil((from - origin_ms) / step - 1e-9)); ; count += 1) {
      const offset_ms = count * step;
      const at = percent(placeOf(origin_ms + offset_ms, window));
      if (origin_ms + offset_ms >= end.from_ms || at >= 97) break;
      const before = ticks.at(-1);
      if (before === undefined || at - before.at > 55 / ticks_max) ticks.push({ at, offset_ms });
    }
    from = end.to_ms;
  }
  return ticks;
}

const minute_ms = 60_000;
const hour_ms = 3_600_000;
/** Above a second, people count in minutes and hours, not in tens. */
const longSteps = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
].map((seconds) => seconds * 1000);

function stepOf(total_ms: number, ticks_max: number): number {
  // Of times far from now, less than this is lost in rounding.
  const least = Math.max(total_ms / ticks_max, 0.001);
  if (least > 1000) {
    const found = longSteps.find((step) => step >= least);
    return found ?? Math.ceil(least / (24 * hour_ms)) * 24 * hour_ms;
  }
  const power = 10 ** Math.floor(Math.log10(least));
  return ([1, 2, 5, 10].find((unit) => unit * power >= least) ?? 10) * power;
}

/** A tick's label: `0`, `250 ms`, `1.5 s`, `2 m`, `1 h 30 m`. */
export function tickLabel(offset_ms: number): string {
  if (offset_ms === 0) return "0";
  if (offset_ms < 1000) return `${trim(offset_ms)} ms`;
  if (offset_ms < minute_ms) return `${trim(offset_ms / 1000)} s`;
  const hours = Math.floor(offset_ms / hour_ms);
  const minutes = Math.floor((offset_ms % hour_ms) / minute_ms);
  const seconds = trim((offset_ms % minute_ms) / 1000);
  const parts = [hours && `${hours} h`, minutes && `${minutes} m`, seconds !== "0" && `${seconds} s`];
  return parts.filter((part) => typeof part === "string").join(" ");
}

const trim = (value: number) => String(Number(value.toFixed(3)));
const clampTo = (value: number, least: number, most: number) => Math.min(most, Math.max(least, value));
const clamp = (value: number) => clampTo(value, 0, 1);
const percent = (value: number) => Math.round(value * 1_000_000) / 10_000;
