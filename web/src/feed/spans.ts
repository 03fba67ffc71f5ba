import type { RunEvent, SpanStatus, Timeline } from "@runreel/client";
import { familyOf, fields, textOf } from "@runreel/client/fold";
import { atMs, errorOf, previewOf, verbOf } from "./read";
import { SpanTree, type NewSpan, type Span } from "./tree";

/** A stretch in which the run waited; `to_ms` is null while it still does. */
export interface Pause {
  from_ms: number;
  to_ms: number | null;
}

const endOfRun = new Map<string, SpanStatus>([
  ["completed", "completed"],
  ["failed", "failed"],
  ["cancelled", "failed"],
]);

/**
 * Events paired into spans by the server's own rule: `X.started` opens, `X.completed` or `X.failed` of the
 * same family and `span_id` closes, an end without a start is a bar of the length it tells.
 */
export class Spans {
  readonly tree = new SpanTree();
  readonly pauses: Pause[] = [];
  readonly #open = new Map<string, { span: Span; asked_ms: number }>();
  #hasStarted = false;
  /** Since when a person is waited for, and how long persons were before. */
  #asking_since: number | null = null;
  #asked_ms = 0;

  take(event: RunEvent): void {
    const kind = familyOf(event.type);
    const verb = verbOf(event.type);
    const at = atMs(event.at);
    const { root } = this.tree;
    // A run that is told of late began with the first thing that happened in it.
    if (root !== null && this.#hasStarted) root.start_ms = Math.min(root.start_ms, at);
    if (kind === "run") this.#run(event, verb, at);
    else if (verb === "started" || verb === "spawned") this.#start(event, kind, at);
    else if (verb === "completed" || verb === "failed") this.#end(event, kind, verb, at);
  }

  #run(event: RunEvent, verb: string, at: number): void {
    const root = this.tree.root ?? this.tree.add(runSpan(event, at));
    const last = this.pauses.at(-1);
    const waiting = last !== undefined && last.to_ms === null ? last : null;
    const status = endOfRun.get(verb);
    // The time before the start is queueing; bars are told from the start.
    if (verb === "started") root.start_ms = at;
    this.#hasStarted ||= verb === "started";
    if (this.#asking_since !== null) this.#asked_ms += Math.max(0, at - this.#asking_since);
    this.#asking_since = verb === "interrupted" ? at : null;
    if (verb === "waiting" || verb === "interrupted") {
      if (waiting === null) this.pauses.push({ from_ms: at, to_ms: null });
    } else if (waiting !== null && (verb === "resumed" || status !== undefined)) {
      waiting.to_ms = at;
    }
    if (status === undefined) return;
    if (verb === "failed") root.error = errorOf(event.payload).slice(0, error_chars_max);
    root.status = status;
    root.end_ms = Math.max(at, root.start_ms);
    root.took_ms = root.end_ms - root.start_ms;
    root.end_seq = event.seq;
  }

  #start(event: RunEvent, kind: string, at: number): void {
    const span = this.tree.add(spanOf(event, kind, at));
    if (event.span_id) this.#open.set(keyOf(kind, event.span_id), { span, asked_ms: this.#asked_ms });
  }

  #end(event: RunEvent, kind: string, status: "completed" | "failed", at: number): void {
    const key = event.span_id ? keyOf(kind, event.span_id) : null;
    const told = fields(event.payload)["duration_ms"];
    const own_ms = typeof told === "number" && told >= 0 ? told : null;
    const opened = key === null ? undefined : this.#open.get(key);
    const earliest = this.tree.root?.start_ms ?? 0;
    const span = opened?.span ?? this.tree.add(spanOf(event, kind, Math.max(at - (own_ms ?? 0), earliest)));
    if (key !== null) this.#open.delete(key);
    span.status = status;
    if (status === "failed") span.error = errorOf(event.payload).slice(0, error_chars_max);
    // A supervisor tells of its workers when all have ended; each bar is as long as its worker took.
    const end_ms = kind === "worker" && own_ms ? Math.min(at, span.start_ms + own_ms) : at;
    span.end_ms = Math.max(end_ms, span.start_ms);
    const asked_ms = this.#asked_ms - (opened?.asked_ms ?? this.#asked_ms);
    const rest_ms = Math.max(0, span.end_ms - span.start_ms - asked_ms);
    span.took_ms = kind === "worker" ? rest_ms : (own_ms ?? rest_ms);
    span.end_seq = event.seq;
  }
}

const error_chars_max = 160;

const keyOf = (kind: string, span_id: string) => `${kind} ${span_id}`;

function runSpan(event: RunEvent, at: number): NewSpan {
  const title = textOf(fields(event.payload)["title"]) ?? event.agent ?? "run";
  const span = { ...spanOf(event, "run", at), span_id: event.run_id, name: title };
  return { ...span, parent_span_id: null, child_run_id: null };
}

function spanOf(event: RunEvent, kind: string, start_ms: number): NewSpan {
  const payload = fields(event.payload);
  const span_id = event.span_id || `seq-${event.seq}`;
  return {
    span_id,
    parent_span_id: event.parent_span_id ?? null,
    kind,
    name: textOf(payload["name"]) ?? textOf(payload["title"]) ?? span_id,
    agent: event.agent ?? null,
    status: "running",
    start_seq: event.seq,
    end_seq: null,
    start_ms,
    end_ms: null,
    took_ms: null,
    child_run_id: kind === "worker" ? textOf(payload["run_id"]) : null,
    preview: kind === "tool" || kind === "worker" ? previewOf(payload["args"] ?? payload["input"]) : "",
  };
}

/** The server's timeline as the same tree, for the first paint. */
export function treeOfTimeline(timeline: Timeline): SpanTree {
  const origin = timeline.started_at ? atMs(timeline.started_at) : 0;
  const tree = new SpanTree();
  for (const from of timeline.spans) {
    const start_ms = origin + from.start_ms;
    const duration = from.duration_ms ?? null;
    tree.add({
      span_id: from.span_id,
      parent_span_id: from.parent_span_id ?? null,
      kind: from.kind,
      name: from.name,
      agent: from.agent ?? null,
      status: from.status,
      start_seq: from.start_seq,
      end_seq: from.end_seq ?? null,
      start_ms,
      end_ms: duration === null ? null : start_ms + duration + (from.waiting_ms ?? 0),
      took_ms: duration,
      child_run_id: from.child_run_id ?? null,
    });
  }
  return tree;
}
