/** The positions of bars, as pure functions of times. Positions are percent of the drawn width. */

export interface Window {
  from_ms: number;
  to_ms: number;
  /** The idle stretches, in order, each drawn with the same small width. */
  cuts?: readonly Lull[];
  /** The share of the width of each cut. */
  cut_share?: number;
}

export interface Lull {
  from_ms: number;
  to_ms: number;
  /** Whether the run waited then, for a person or another run. */
  isWait?: boolean;
}

const least_cut_share = 0.05;
const most_cut_share = 0.12;
/** The width of a cut's label. */
const cut_px = 58;

export interface Bar {
  left: number;
  width: number;
}

/** The shortest time that is drawn. */
const least_drawn_ms = 1;

/** The window from the run's start to its end or to now. */
export function windowOf(start_ms: number, end_ms: number | null, now_ms: number): Window {
  const to = end_ms ?? Math.max(now_ms, start_ms);
  return { from_ms: start_ms, to_ms: Math.max(to, start_ms + least_drawn_ms) };
}

/**
 * The window with these cuts; without them when nothing else would be left of it. `lane_px`: the width in which it is
 * drawn.
 */
export function without(cuts: readonly Lull[], { from_ms, to_ms }: Window, lane_px = 0): Window {
  if (to_ms - from_ms - sumOf(cuts) < least_drawn_ms) return { from_ms, to_ms };
  const cut_share =
    lane_px > 0 ? clampTo(cut_px / lane_px, least_cut_share, most_cut_share) : least_cut_share;
  return { from_ms, to_ms, cuts, cut_share };
}

export const sumOf = (cuts: readonly Lull[]) =>
  cuts.reduce((sum, { from_ms, to_ms }) => sum + to_ms - from_ms, 0);

/** Where a time is drawn, 0 to 1. */
export function placeOf(
  ms: number,
  { from_ms, to_ms, cuts = [], cut_share = least_cut_share }: Window,
): number {
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

/** The bar of a stretch of time, cut to the window. A running stretch reaches to the window's end. */
export function barOf(start_ms: number, end_ms: number | null, window: Window): Bar {
  const from = placeOf(start_ms, window);
  const to = placeOf(end_ms ?? window.to_ms, window);
  return { left: percent(from), width: percent(Math.max(0, to - from)) };
}

/** A part of the window, moved so that it stays within the whole, and not too short. */
export function zoomed(whole: Window, from_ms: number, to_ms: number): [number, number] {
  const total = whole.to_ms - whole.from_ms;
  const length = Math.min(total, Math.max(to_ms - from_ms, total / 100_000, 0.01));
  const from = clampTo(from_ms, whole.from_ms, whole.to_ms - length);
  return [from, from + length];
}

const clampTo = (value: number, least: number, most: number) => Math.min(most, Math.max(least, value));
const clamp = (value: number) => clampTo(value, 0, 1);
export const percent = (value: number) => Math.round(value * 1_000_000) / 10_000;
