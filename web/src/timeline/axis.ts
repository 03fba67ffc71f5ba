/** The labels of the axis, and the time at a place of it. */

import { percent, placeOf, sumOf, type Window } from "./geometry";

export interface Tick {
  at: number;
  /** Milliseconds after the window's start. */
  offset_ms: number;
}

/** The time that is drawn at a place, 0 to 1. */
export function timeAt(place: number, window: Window): number {
  // Places grow with time, so bisection finds it.
  let [low, high] = [window.from_ms, window.to_ms];
  for (let step = 0; step < 50; step += 1) {
    const middle = (low + high) / 2;
    if (placeOf(middle, window) < place) low = middle;
    else high = middle;
  }
  return high;
}

/** Ticks at round steps after the origin, as many as fit into `ticks_max`; none where time is cut out. */
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
/** Above a second, steps are round in minutes and hours, not in tens. */
const longSteps = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
].map((seconds) => seconds * 1000);

function stepOf(total_ms: number, ticks_max: number): number {
  // For times far from the epoch, a smaller step would be lost in rounding.
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
