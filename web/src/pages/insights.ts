import { timeIn, zoneId } from "../ui/time";
import { zone } from "../ui/looks.svelte";
import { literal, type Example, type QueryResult } from "../api/sql";
import { numberOf } from "./sqlcells";

/** The periods of the figures: in the address, in words, and for Postgres. */
export const ranges = [
  { id: "24h", name: "last day", interval: "24 hours", bucket: "hour", bucket_ms: 3_600_000, buckets: 24 },
  { id: "7d", name: "last week", interval: "7 days", bucket: "day", bucket_ms: 86_400_000, buckets: 7 },
  { id: "30d", name: "last month", interval: "30 days", bucket: "day", bucket_ms: 86_400_000, buckets: 30 },
  { id: "90d", name: "last quarter", interval: "90 days", bucket: "day", bucket_ms: 86_400_000, buckets: 90 },
] as const;

export type Range = (typeof ranges)[number];

export const rangeOf = (id: string | null): Range => ranges.find((each) => each.id === id) ?? ranges[1];

/** One row with all totals, in addition to the server's own queries. */
export const figures = `select count(*) as runs, count(*) filter (where ended_at is not null) as ended,
       count(*) filter (where status = 'failed') as failed,
       round(percentile_cont(0.5) within group (order by duration_ms) filter (where ended_at is not null)) as p50_ms,
       round(percentile_cont(0.95) within group (order by duration_ms) filter (where ended_at is not null)) as p95_ms,
       sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens,
       sum(cost_usd) as cost_usd, bool_or(cost_is_partial) as is_partial
from runs where created_at > now() - interval '7 days' and role <> 'router'`;

/** The agents to choose from. */
export const agentsQuery = `select agent, count(*) as runs from runs
where agent is not null and role <> 'router' and created_at > now() - interval '90 days'
group by 1 order by 2 desc limit 100`;

/** The query over another period and, if given, one agent, to which its view is narrowed. */
export function narrowed(query: string, range: Range, agent: string): string {
  const over = query
    .replace("interval '7 days'", `interval '${range.interval}'`)
    .replaceAll(/date_trunc\('day', (\w+)\)/g, `date_trunc('${range.bucket}', $1, ${literal(zoneId())})`);
  const view = /\bfrom (runs|tool_calls|model_calls|interrupts)\b/.exec(over)?.[1];
  if (agent === "" || view === undefined) return over;
  return `with ${view} as (select * from ${view} where agent = ${literal(agent)})\n${over}`;
}

export type Row = Record<string, unknown>;

/** The rows by the names of their columns. */
export const rowsOf = ({ columns, rows }: QueryResult): Row[] =>
  rows.map((row) => Object.fromEntries(columns.map(({ name }, at) => [name, row[at]])));

/** A time as Postgres writes it, in milliseconds since the epoch; one without a zone as of UTC. */
export function sqlTime(text: unknown): number | null {
  if (typeof text !== "string") return null;
  const time = text.replace(" ", "T").replace(/(T.*[+-]\d\d)$/, "$1:00");
  const ms = Date.parse(/T[^Z+-]*$/.test(time) ? `${time}Z` : time);
  return Number.isNaN(ms) ? null : ms;
}

/** The buckets of a period, also empty ones; only those of the rows if these do not match them. */
export function bucketsOf(rows: readonly Row[], range: Range, now_ms: number): number[] {
  const found = [...new Set(rows.map((row) => sqlTime(row["day"])))]
    .filter((ms) => ms !== null)
    .sort((a, b) => a - b);
  const all = Array.from({ length: range.buckets + 1 }, (_, at) =>
    startOf(now_ms, range.buckets - at, range),
  );
  return found.every((ms) => all.includes(ms)) ? all : found;
}

/** The start of the bucket that is `before` buckets before now, in the display time zone. */
function startOf(now_ms: number, before: number, { bucket, bucket_ms }: Range): number {
  const now = new Date(now_ms);
  if (zone.current === "utc") return now_ms - (now_ms % bucket_ms) - before * bucket_ms;
  const isDay = bucket === "day";
  return new Date(
    now.getFullYear(),
    now.getMonth(),
    now.getDate() - (isDay ? before : 0),
    isDay ? 0 : now.getHours() - before,
  ).getTime();
}

/** The values of a column by bucket, added up where a bucket has several rows; null where it has none. */
export function valuesOf(
  rows: readonly Row[],
  buckets: readonly number[],
  column: string,
): (number | null)[] {
  const sums = new Map<number, number>();
  for (const row of rows) {
    const ms = sqlTime(row["day"]);
    const value = numberOf(row[column]);
    if (ms !== null && value !== null) sums.set(ms, (sums.get(ms) ?? 0) + value);
  }
  return buckets.map((ms) => sums.get(ms) ?? null);
}

export const bucketName = (ms: number, range: Range): string =>
  timeIn(range.bucket === "hour" ? "hour" : "date", ms);

/** Queries by their ids. */
export const byId = (examples: readonly Example[]): Map<string, Example> =>
  new Map(examples.filter(({ group }) => group === "insights").map((each) => [each.id, each]));
