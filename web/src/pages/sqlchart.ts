import type { Column, QueryResult } from "../api/sql";
import type { Series } from "../ui/chart";
import { timeIn } from "../ui/time";
import { sqlTime } from "./insights";
import { axisLabel, isTime, numberOf } from "./sqlcells";

/** Maximum number of slots; more could not be told apart. */
export const slots_max = 400;
/** Maximum number of series, for lack of colours: the smallest are combined. */
const series_max = 6;

export interface Drawn {
  labels: string[];
  series: Series[];
  /** The number of rows that are not drawn. */
  left_out: number;
}

/** The column that splits rows into series: the first that distinguishes rows at the same place; null if none does. */
export function splitOf(
  { columns, rows }: QueryResult,
  along: number,
  among: readonly number[],
): number | null {
  const places = rows.map((row) => JSON.stringify(row[along]));
  if (new Set(places).size === places.length) return null;
  const found = among.find((at) => {
    const both = rows.map((row, place) => `${places[place]} ${JSON.stringify(row[at])}`);
    return at !== along && !isTime(columns[at] as Column) && new Set(both).size === both.length;
  });
  return found ?? null;
}

/**
 * A result as a chart. Times are in order on an axis of time, also those without a row; other values are in the order
 * of the rows. Rows at the same place are summed.
 */
export function drawnOf(
  { columns, rows }: QueryResult,
  along: number,
  up: number,
  split: number | null,
): Drawn {
  const column = columns[along] as Column;
  const keyOf = (row: readonly unknown[]) =>
    isTime(column) ? (sqlTime(row[along]) ?? "none") : axisLabel(row[along], column);
  const keys = [...new Set(rows.map(keyOf))];
  const times = keys.filter((key) => typeof key === "number").sort((a, b) => a - b);
  const isOnTime = isTime(column) && times.length > 0;
  const slots: (number | string)[] = isOnTime ? slotsOf(times) : keys;
  const shown = slots.slice(isOnTime ? -slots_max : 0, isOnTime ? undefined : slots_max);
  const placeOf = new Map(shown.map((key, at) => [key, at]));
  const found = new Map<string, (number | null)[]>();
  let left_out = 0;
  for (const row of rows) {
    const [place, value] = [placeOf.get(keyOf(row)), numberOf(row[up])];
    if (place === undefined) {
      left_out += 1;
      continue;
    }
    const name = split === null ? (columns[up]?.name ?? "") : axisLabel(row[split], columns[split] as Column);
    const values = found.get(name) ?? shown.map(() => null);
    if (value !== null) values[place] = (values[place] ?? 0) + value;
    found.set(name, values);
  }
  return {
    labels: isOnTime ? labelsOf(shown as number[], column) : shown.map(String),
    series: seriesOf([...found].map(([name, values]) => ({ name, values }))),
    left_out,
  };
}

/** The times and, where they are regular, those between them. */
function slotsOf(times: readonly number[]): number[] {
  const steps = times.slice(1).map((time, at) => time - (times[at] as number));
  const step = Math.min(...steps);
  const isRegular =
    steps.length > 0 && steps.every((each) => Math.abs(each / step - Math.round(each / step)) < 0.05);
  const [first = 0, last = 0] = [times[0], times.at(-1)];
  const count = Math.round((last - first) / step) + 1;
  if (!isRegular || count > slots_max) return [...times];
  // Days differ in length: an existing time replaces the computed one.
  const there = new Map(times.map((time) => [Math.round((time - first) / step), time]));
  return Array.from({ length: count }, (_, at) => there.get(at) ?? first + at * step);
}

const day_ms = 86_400_000;

/** Times without a zone and days of UTC are shown in UTC; other times in the display zone. */
function labelsOf(times: readonly number[], { type }: Column): string[] {
  const isUtc = type !== "timestamptz" || (times.length > 1 && times.every((time) => time % day_ms === 0));
  const [date, hour] = (["date", "hour"] as const).map(
    (shape) => (time: number) => timeIn(shape, time, isUtc || undefined),
  ) as [(time: number) => string, (time: number) => string];
  const isDays = type === "date" || (times.length > 1 && new Set(times.map(hour)).size === 1);
  return times.map((time) => (isDays ? date(time) : `${date(time)} ${hour(time)}`));
}

function seriesOf(all: readonly Series[]): Series[] {
  if (all.length <= series_max) return [...all];
  const sum = ({ values }: Series) =>
    values.reduce((total: number, value) => total + Math.abs(value ?? 0), 0);
  const largest = [...all].sort((a, b) => sum(b) - sum(a));
  const rest = largest.slice(series_max - 1);
  const values = (rest[0]?.values ?? []).map((_, at) => {
    const here = rest.map((each) => each.values[at] ?? null).filter((value) => value !== null);
    return here.length === 0 ? null : here.reduce((total, value) => total + value, 0);
  });
  return [
    ...largest.slice(0, series_max - 1),
    { name: `${rest.length} others`, values, colour: "--bar-run" },
  ];
}
