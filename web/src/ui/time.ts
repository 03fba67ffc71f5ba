/** Times for display: all of them in the chosen time zone, in one format for all locales. */

import { zone } from "./looks.svelte";

const shapes = {
  minute: { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" },
  year: { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit" },
  second: {
    weekday: "short",
    day: "numeric",
    month: "short",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
  },
  clock: { hour: "2-digit", minute: "2-digit", second: "2-digit" },
  exact: { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 },
  date: { day: "numeric", month: "short" },
  hour: { hour: "2-digit", minute: "2-digit" },
  zone: { timeZoneName: "short" },
} satisfies Record<string, Intl.DateTimeFormatOptions>;

export type Shape = keyof typeof shapes;

const forms = new Map<string, Intl.DateTimeFormat>();

/** A time in one of the shapes: `Thu 27 Nov 02:00`, `02:00:03.120`. */
export function timeIn(shape: Shape, ms: number, isUtc = zone.current === "utc"): string {
  const key = `${shape} ${isUtc}`;
  let form = forms.get(key);
  if (form === undefined) {
    const timeZone = isUtc ? { timeZone: "UTC" } : {};
    form = new Intl.DateTimeFormat("en-GB", { ...shapes[shape], ...timeZone, hourCycle: "h23" });
    forms.set(key, form);
  }
  return Number.isFinite(ms) ? form.format(ms).replaceAll(",", "") : "–";
}

const half_year_ms = 15_552_000_000;

/** The day and the time, with the year if it is more than half a year away. */
export const when = (ms: number, now_ms: number): string =>
  timeIn(Math.abs(now_ms - ms) > half_year_ms ? "year" : "minute", ms);

/** `just now`, `12 s ago`, `3 m ago`, then the date and the time. */
export function ago(then_ms: number, now_ms: number): string {
  const seconds = Math.max(0, Math.floor((now_ms - then_ms) / 1000));
  if (seconds < 2) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return when(then_ms, now_ms);
}

export const timeOfDay = (ms: number): string => timeIn("exact", ms);

/** The full time, for tooltips: `Sat 28 Nov 2026 02:00:03.120 UTC`. */
export function exact(at: number | string): string {
  const ms = typeof at === "string" ? Date.parse(at) : at;
  if (!Number.isFinite(ms)) return "";
  const day = timeIn("minute", ms).slice(0, -6);
  const year = timeIn("year", ms).split(" ")[2] ?? "";
  return `${day} ${year} ${timeIn("exact", ms)} ${zoneName(ms)}`;
}

/** The short name of the zone that times are shown in: `UTC`, `GMT+1`. */
export const zoneName = (ms: number): string => timeIn("zone", ms).split(" ").at(-1) ?? "";

/** Its name for a database: `Europe/Berlin`. */
export function zoneId(): string {
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return zone.current === "utc" || own === "Etc/Unknown" ? "UTC" : own;
}

/** A range of time; the day is shown once if it is the same. */
export function between(from_ms: number, to_ms: number): string {
  const [from, to] = [timeIn("second", from_ms), timeIn("second", to_ms)];
  return `${from} – ${from.slice(0, -9) === to.slice(0, -9) ? to.slice(-8) : to}`;
}
