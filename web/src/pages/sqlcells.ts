import type { Column, QueryResult } from "../api/sql";
import { runPath } from "./routes";

const numeric = new Set(["int2", "int4", "int8", "float4", "float8", "numeric"]);
const times = new Set(["timestamptz", "timestamp", "date"]);
/** Maximum characters of a cell; a longer value can be opened. */
export const cell_chars_max = 160;

export const isNumeric = ({ type }: Column): boolean => numeric.has(type);
export const isTime = ({ type }: Column): boolean => times.has(type);

/** A value as it is shown in a cell. */
export interface Cell {
  text: string;
  isCut: boolean;
  isNull: boolean;
  href: string | null;
}

/** Whether the ids in a column are those of runs. */
const isRunColumn = ({ name, type }: Column) => type === "uuid" && /(^|_)run_id$/.test(name);

export function cellOf(value: unknown, column: Column): Cell {
  if (value === null || value === undefined) return { text: "·", isCut: false, isNull: true, href: null };
  const whole = typeof value === "string" ? value : JSON.stringify(value);
  const text = whole.slice(0, cell_chars_max).replace(/\s+/g, " ");
  const isCut = whole.length > cell_chars_max || (typeof value === "object" && value !== null);
  return { text, isCut, isNull: false, href: isRunColumn(column) ? runPath(whole) : null };
}

/** A number of a result, also from the text of a more exact number. */
export function numberOf(value: unknown): number | null {
  const number =
    typeof value === "number" ? value : typeof value === "string" && value !== "" ? Number(value) : NaN;
  return Number.isFinite(number) ? number : null;
}

/** The columns that can be the x axis, best first, and those that are numbers. */
export function axesOf({ columns }: QueryResult): { along: number[]; numbers: number[] } {
  const places = columns.map((_, at) => at);
  const numbers = places.filter((at) => isNumeric(columns[at] as Column));
  const rest = places.filter((at) => !numbers.includes(at));
  const first = rest.filter((at) => isTime(columns[at] as Column));
  return { along: [...first, ...rest.filter((at) => !first.includes(at)), ...numbers], numbers };
}

/** A label of the axis; a time is shortened to its day or minute. */
export function axisLabel(value: unknown, column: Column): string {
  if (value === null || value === undefined) return "none";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  if (!isTime(column)) return text;
  const [day = "", time = ""] = text.replace("T", " ").split(" ");
  const minutes = time.slice(0, 5);
  return minutes === "" || minutes === "00:00" ? day : `${day.slice(5)} ${minutes}`;
}
