import { searchWith } from "./routes";

/** What a list of runs is filtered by, as it stands in the address. */
export const filterNames = [
  "status",
  "role",
  "q",
  "agent",
  "tag",
  "thread_id",
  "parent_run_id",
  "since",
] as const;

export type FilterName = (typeof filterNames)[number];
export type Filter = Record<FilterName, string>;

/** What can be written into the search, before a colon. */
const written: Record<string, FilterName> = {
  agent: "agent",
  tag: "tag",
  thread: "thread_id",
  thread_id: "thread_id",
  status: "status",
  role: "role",
};

/** What a chip calls its filter. */
export const chipNames: readonly [FilterName, string][] = [
  ["agent", "agent"],
  ["tag", "tag"],
  ["thread_id", "thread"],
  ["parent_run_id", "below"],
];

export function filterOf(search: string): Filter {
  const params = new URLSearchParams(search);
  return Object.fromEntries(filterNames.map((name) => [name, params.get(name) ?? ""])) as Filter;
}

/** Takes `agent:planner` and the like out of a search; what is left is searched for. */
export function readSearch(text: string): { q: string; chips: Partial<Filter> } {
  const chips: Partial<Filter> = {};
  const rest = text.split(/\s+/).filter((word) => {
    const [, name = "", value = ""] = /^(\w+):(\S+)$/.exec(word) ?? [];
    const filter = written[name.toLowerCase()];
    if (filter !== undefined) chips[filter] = value;
    return filter === undefined;
  });
  return { q: rest.join(" ").trim(), chips };
}

/** What the API is asked for what somebody is typing: the last word may not be whole yet, and no word is no search. */
export function asTyped(text: string): string {
  if (!/[\p{L}\p{N}]/u.test(text)) return "";
  // Scripts without spaces are searched by pairs of characters as they are.
  return /[\p{sc=Latn}\p{sc=Cyrl}\p{sc=Grek}\p{N}]{3}$/u.test(text) ? `${text}*` : text;
}

/** The statuses of a filter, with one of them switched on or off. */
export function toggled(statuses: string, status: string): string {
  const all = statuses.split(",").filter((each) => each !== "");
  return (all.includes(status) ? all.filter((each) => each !== status) : [...all, status]).join(",");
}

/** Spans of time before now, in hours, and their names. */
export const sinces: readonly [string, string, number][] = [
  ["1h", "last hour", 1],
  ["24h", "last day", 24],
  ["7d", "last week", 168],
  ["30d", "last month", 720],
];

const hour_ms = 3_600_000;

/** The time that a `since` of the address means, for the API; a time in it stays as it is. */
export function sinceOf(since: string, now_ms: number): string {
  const hours = sinces.find(([name]) => name === since)?.[2];
  return hours === undefined ? since : new Date(now_ms - hours * hour_ms).toISOString();
}

/** The address of the list with nothing but this filter. */
export const onlyPath = (filter: Partial<Filter>): string => `/${searchWith("", filter)}`;
