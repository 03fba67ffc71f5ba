/**
 * The shapes of the wire, as docs/protocol.md gives them, written by hand until `npm run generate` has the
 * server's OpenAPI snapshot. This file is then the only place to change: `Run`, `RunEvent`, `RunTimeline`,
 * `RunList`, `EventPage` and `Problem` are the names of the schemas there.
 */

export type RunStatus =
  "queued" | "running" | "waiting" | "interrupted" | "completed" | "failed" | "cancelled";

export interface Run {
  run_id: string;
  root_run_id: string;
  parent_run_id: string | null;
  owner_id: string;
  thread_id: string | null;
  session_id?: string | null;
  agent: string | null;
  role: string;
  title: string | null;
  status: RunStatus;
  input?: unknown;
  output?: unknown;
  error?: unknown;
  metadata?: unknown;
  tags?: string[];
  last_seq: number;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
  last_event_at?: string | null;
  stalled?: boolean;
  stream_url?: string;
}

export interface RunEvent {
  run_id: string;
  seq: number;
  type: string;
  role: string;
  agent: string | null;
  owner_id?: string;
  span_id?: string | null;
  parent_span_id?: string | null;
  event_id?: string | null;
  at: string;
  payload: unknown;
}

/** A token or an output chunk: live only, never a row. `offset` counts Unicode characters. */
export interface DeltaEvent extends Omit<RunEvent, "seq" | "payload"> {
  seq: null;
  payload: { text: string; offset: number };
}

/** The text so far of a span that was open when the stream joined; `offset` is its length in characters. */
export interface Snapshot {
  run_id: string;
  span_id: string;
  type?: string;
  role?: string;
  agent?: string | null;
  text: string;
  offset: number;
}

export type SpanStatus = "running" | "completed" | "failed";

export interface TimelineSpan {
  run_id: string;
  span_id: string;
  parent_span_id?: string | null;
  kind: string;
  name: string;
  role?: string;
  agent?: string | null;
  status: SpanStatus;
  start_seq: number;
  end_seq?: number | null;
  start_ms: number;
  duration_ms?: number | null;
  child_run_id?: string | null;
}

export interface TimelineSummary {
  total_ms?: number;
  tool_ms?: number;
  model_ms?: number;
  waiting_ms?: number;
  node_durations_ms?: Record<string, number>;
  counts?: Record<string, number>;
  usage?: Record<string, unknown>;
}

export interface Timeline {
  run_id: string;
  last_seq: number;
  started_at: string | null;
  spans: TimelineSpan[];
  summary: TimelineSummary;
}

export interface RunPage {
  runs: Run[];
  next_cursor?: string | null;
}

export interface EventPage {
  events: RunEvent[];
  next_after: number;
  last_seq: number;
  has_more: boolean;
}

/** RFC 9457. `code` is the stable word; `title` is for people. */
export interface Problem {
  type?: string;
  title: string;
  status: number;
  detail?: string;
  code: string;
  hint?: string;
  field?: string;
}

const terminal = new Set<string>(["completed", "failed", "cancelled"]);

/** A run in such a status never gets another event. */
export function isTerminal(status: string): boolean {
  return terminal.has(status);
}
