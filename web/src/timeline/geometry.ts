/** Where a bar lies, as pure functions of times. Positions are percent of the drawn width. */

export interface Window {
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

/** What is drawn: from the run's start to its end or to now, and never of no length. */
export function windowOf(start_ms: number, end_ms: number | null, now_ms: number): Window {
  const to = end_ms ?? Math.max(now_ms, start_ms);
  return { from_ms: start_ms, to_ms: Math.max(to, start_ms + 1) };
}

/** The bar of a stretch of time, cut to the window. A running stretch reaches to the window's end. */
export function barOf(start_ms: number, end_ms: number | null, window: Window): Bar {
  const total = window.to_ms - window.from_ms;
  const from = clamp((start_ms - window.from_ms) / total);
  const to = clamp(((end_ms ?? window.to_ms) - window.from_ms) / total);
  return { left: percent(from), width: percent(Math.max(0, to - from)) };
}

/** Round steps of 1, 2 or 5, as many as fit into `ticks_max`, beginning at zero. */
export function ticksOf(window: Window, ticks_max: number): Tick[] {
  const total = window.to_ms - window.from_ms;
  const step = stepOf(total, ticks_max);
  const ticks: Tick[] = [];
  for (let count = 0; count * step < total * 0.97; count += 1) {
    const offset_ms = count * step;
    ticks.push({ at: percent(offset_ms / total), offset_ms });
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
  const least = total_ms / ticks_max;
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
  const seconds = Math.round((offset_ms % minute_ms) / 1000);
  const parts = [hours && `${hours} h`, minutes && `${minutes} m`, seconds && `${seconds} s`];
  return parts.filter((part) => typeof part === "string").join(" ");
}

const trim = (value: number) => String(Number(value.toFixed(3)));
const clamp = (value: number) => Math.min(1, Math.max(0, value));
const percent = (value: number) => Math.round(value * 1_000_000) / 10_000;
