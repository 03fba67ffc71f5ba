import { timeIn } from "../ui/time";
import type { Query } from "@runreel/client";
import { duration } from "../ui/format";
import { money } from "../ui/money";

/** The filters of a list of runs, by their names in the address. */
export const filterNames = [
  "status",
  "role",
  "q",
  "agent",
  "tag",
  "thread_id",
  "model",
  "parent_run_id",
  "external_id",
  "since",
  "until",
  "duration_min_ms",
  "duration_max_ms",
  "cost_min_usd",
  "cost_max_usd",
  "root_run_id",
] as const;

export type FilterName = (typeof filterNames)[number];
export type Filter = Record<FilterName, string>;

export const statuses = ["running", "interrupted", "failed", "completed", "waiting", "queued", "cancelled"];
export const roles = ["agent", "supervisor", "worker", "router"];

/** A kind of filter: its label, and its names in the address. */
export interface Kind {
  word: string;
  names: readonly FilterName[];
  /** Whether it can be added from the menu. */
  isOffered: boolean;
}

export const kinds: readonly Kind[] = [
  { word: "status", names: ["status"], isOffered: true },
  { word: "agent", names: ["agent"], isOffered: true },
  { word: "tag", names: ["tag"], isOffered: true },
  { word: "thread", names: ["thread_id"], isOffered: true },
  { word: "model", names: ["model"], isOffered: true },
  { word: "created", names: ["since", "until"], isOffered: true },
  { word: "duration", names: ["duration_min_ms", "duration_max_ms"], isOffered: true },
  { word: "cost", names: ["cost_min_usd", "cost_max_usd"], isOffered: true },
  { word: "role", names: ["role"], isOffered: true },
  { word: "external id", names: ["external_id"], isOffered: false },
  { word: "below", names: ["parent_run_id"], isOffered: false },
  { word: "tree of", names: ["root_run_id"], isOffered: false },
];

/** A filter by a range: how its numbers are parsed and shown. */
export interface Range {
  read: (text: string) => number | null;
  say: (value: number) => string;
  rule: string;
  examples: readonly [string, string];
}

export const ranges: Readonly<Record<string, Range>> = {
  duration: {
    read: (text) => msOf(text),
    say: duration,
    rule: "A time is a number and a unit: 30 s, 1 m 30 s, 2 h.",
    examples: ["30 s", "5 m"],
  },
  cost: {
    read: (text) => usdOf(text),
    say: money,
    rule: "A cost is a number of US dollars: 0.05, $2.",
    examples: ["$0.05", "$2"],
  },
};

/** The range to which a filter belongs. */
const rangeOf = (name: FilterName) =>
  ranges[kinds.find(({ names }) => names.length === 2 && names.includes(name))?.word ?? ""];

/** Words that can be written before a colon in the search. */
const written: Record<string, FilterName> = {
  agent: "agent",
  tag: "tag",
  thread: "thread_id",
  thread_id: "thread_id",
  model: "model",
  status: "status",
  role: "role",
  external_id: "external_id",
  since: "since",
  longer: "duration_min_ms",
  shorter: "duration_max_ms",
  costlier: "cost_min_usd",
  cheaper: "cost_max_usd",
};

export function filterOf(search: string): Filter {
  const params = new URLSearchParams(search);
  return Object.fromEntries(filterNames.map((name) => [name, params.get(name) ?? ""])) as Filter;
}

export const isFiltered = (filter: Filter): boolean => Object.values(filter).some((value) => value !== "");

/** Whether only runs without a parent are listed; a search looks in all runs. */
export function hasRoots(search: string): boolean {
  const { status: _, since: _s, until: _u, ...rest } = filterOf(search);
  const chosen = new URLSearchParams(search).get("runs");
  return (
    rest.parent_run_id === "" && (chosen === null ? !isFiltered({ ...noFilter, ...rest }) : chosen === "top")
  );
}

const noFilter = filterOf("");

/** The query of the API for the address. A relative time counts back from `now_ms`. */
export function queryOf(search: string, now_ms: number): Query {
  const params = new URLSearchParams(search);
  const filter = filterOf(search);
  return {
    ...filter,
    q: asTyped(filter.q),
    since: sinceOf(filter.since, now_ms),
    roots: hasRoots(search) || null,
    sort: params.get("sort"),
    order: params.get("order"),
  };
}

/** The query without the members that do not affect the counts by status. */
export function countQueryOf({ status: _, sort: _s, order: _o, ...query }: Query): Query {
  return query;
}

export interface Chip extends Kind {
  text: string;
}

/** The filters besides status and words, for display. */
export function chipsOf(filter: Filter): Chip[] {
  return kinds.flatMap((kind) => {
    if (kind.word === "status" || kind.names.every((name) => filter[name] === "")) return [];
    return [{ ...kind, text: textOf(kind, filter) }];
  });
}

function textOf({ word, names }: Kind, filter: Filter): string {
  const [first = "", second = ""] = names.map((name) => filter[name]);
  if (word === "created") return timeText(first, second);
  const range = ranges[word];
  if (range === undefined) return valuesOf(first).join(word === "tag" ? " and " : " or ");
  const [least, most] = [first, second].map((value) => range.say(Number(value)));
  if (second === "") return `at least ${least}`;
  return first === "" ? `less than ${most}` : `${least} to ${most}`;
}

/** Values separated by commas; `\,` is a comma in one. */
export const valuesOf = (text: string): string[] =>
  text
    .split(/(?<!\\),/)
    .filter((value) => value !== "")
    .map((value) => value.replaceAll("\\,", ","));

/** A value escaped for such a list. */
export const escaped = (value: string): string => value.replaceAll(",", "\\,");

/** Splits a search into filters such as `agent:planner` and the remaining words. */
export function readSearch(text: string): { q: string; chips: Partial<Filter> } {
  const chips: Partial<Filter> = {};
  const words = text.match(/\w+:"[^"]*"|\S+/g) ?? [];
  const rest = words.filter((word) => {
    const [, name = "", quoted, plain = ""] = /^(\w+):(?:"([^"]+)"|([^"]\S*))$/.exec(word) ?? [];
    const filter = written[name.toLowerCase()];
    if (filter === undefined) return true;
    const value = quoted ?? plain;
    const range = rangeOf(filter);
    const read = range ? range.read(value)?.toString() : filter === "status" ? value : escaped(value);
    if (read === undefined) return true;
    chips[filter] = read;
    return false;
  });
  return { q: rest.join(" ").trim(), chips };
}

/** The search for a text that is being typed: the last word may be incomplete; without a word there is no search. */
export function asTyped(text: string): string {
  if (!/[\p{L}\p{N}]/u.test(text)) return "";
  // Scripts without spaces are searched by pairs of characters as they are.
  return /[\p{sc=Latn}\p{sc=Cyrl}\p{sc=Grek}\p{N}]{3}$/u.test(text) ? `${text}*` : text;
}

/** The values of a filter, with one of them switched on or off. */
export function toggled(values: string, value: string): string {
  const all = values.split(",").filter((each) => each !== "");
  return (all.includes(value) ? all.filter((each) => each !== value) : [...all, value]).join(",");
}

const units: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `90`, `30 s`, `1m30s`, `2 h` in milliseconds; a number alone is seconds. `null` when it is none of these. */
export function msOf(text: string): number | null {
  const plain = text.trim().toLowerCase();
  if (/^\d+(\.\d+)?$/.test(plain)) return Math.round(Number(plain) * 1_000);
  if (!/^(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+$/.test(plain)) return null;
  const parts = [...plain.matchAll(/(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)/g)];
  return Math.round(
    parts.reduce((sum, [, value, unit]) => sum + Number(value) * (units[unit ?? ""] ?? 0), 0),
  );
}

/** `0.05`, `$2`; `null` when it is no amount. */
export function usdOf(text: string): number | null {
  const plain = text.trim().replace(/^\$\s*/, "");
  return /^\d+(\.\d+)?$/.test(plain) ? Number(plain) : null;
}

/** Spans of time before now, in hours, and their names. */
export const sinces: readonly [string, string, number][] = [
  ["1h", "last hour", 1],
  ["24h", "last day", 24],
  ["7d", "last week", 168],
  ["30d", "last month", 720],
];

/** The time of a `since` of the address, for the API; an absolute time is unchanged. */
export function sinceOf(since: string, now_ms: number): string {
  const hours = sinces.find(([name]) => name === since)?.[2];
  return hours === undefined ? since : new Date(now_ms - hours * 3_600_000).toISOString();
}

function timeText(since: string, until: string): string {
  const named = sinces.find(([name]) => name === since)?.[1];
  const [from, to] = [since, until].map((at) =>
    Number.isNaN(Date.parse(at)) ? at : timeIn("minute", Date.parse(at)),
  );
  if (until === "") return named ?? `since ${from}`;
  return since === "" ? `before ${to}` : `${named ?? from} – ${to}`;
}
