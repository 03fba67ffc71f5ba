/** A column of a table of figures, and how it is formatted. */
export interface Shown {
  name: string;
  title: string;
  as: "text" | "agent" | "run" | "count" | "ms" | "usd" | "ago";
}

export interface Table {
  /** The id of the server's query, without `insights_`. */
  id: string;
  title: string;
  /** The text when there are no rows. */
  none: string;
  /** The column that is also drawn as a bar. */
  bar?: string;
  columns: readonly Shown[];
}

const shown = (name: string, title: string, as: Shown["as"]): Shown => ({ name, title, as });
const agent = shown("agent", "Agent", "agent");
const runs = shown("runs", "Runs", "count");
const p50 = shown("p50_ms", "p50", "ms");
const p95 = shown("p95_ms", "p95", "ms");
const cost = shown("cost_usd", "Cost", "usd");

export const tables: readonly Table[] = [
  {
    id: "failures",
    title: "What fails",
    none: "Nothing failed.",
    bar: "runs",
    columns: [shown("error", "Error", "run"), agent, runs, shown("last_at", "Last", "ago")],
  },
  {
    id: "durations",
    title: "How long runs take",
    none: "No run has ended.",
    bar: "p95_ms",
    columns: [agent, runs, p50, p95, shown("max_ms", "Longest", "ms")],
  },
  {
    id: "slowest_tools",
    title: "The slowest tools",
    none: "No tool was called.",
    bar: "p95_ms",
    columns: [
      shown("name", "Tool", "text"),
      shown("calls", "Calls", "count"),
      shown("failed", "Failed", "count"),
      p50,
      p95,
    ],
  },
  {
    id: "cost",
    title: "What agents cost",
    none: "No call of a model has told its tokens.",
    bar: "cost_usd",
    columns: [
      agent,
      runs,
      shown("input_tokens", "Tokens in", "count"),
      shown("output_tokens", "out", "count"),
      cost,
    ],
  },
  {
    id: "expensive_runs",
    title: "The most expensive runs",
    none: "No run has a known cost.",
    bar: "cost_usd",
    columns: [shown("title", "Run", "run"), agent, shown("calls", "Calls", "count"), cost],
  },
  {
    id: "waiting",
    title: "What waits for people",
    none: "No run waits for a person.",
    columns: [shown("prompt", "Question", "run"), agent, shown("waiting_ms", "For", "ms")],
  },
  {
    id: "stalled",
    title: "Silent for ten minutes",
    none: "Every open run has been heard of.",
    columns: [
      shown("title", "Run", "run"),
      agent,
      shown("status", "Status", "text"),
      shown("silent_ms", "For", "ms"),
    ],
  },
];
