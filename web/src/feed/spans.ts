import type { RunEvent, SpanStatus, Timeline } from "../api/types";
import { atMs, familyOf, fields, textOf, titleOf, verbOf } from "./read";

/** A bar of the waterfall. Times are milliseconds since the epoch; `end_ms` is null while it runs. */
export interface Span {
  index: number;
  span_id: string;
  parent_span_id: string | null;
  kind: string;
  name: string;
  agent: string | null;
  status: SpanStatus;
  start_seq: number;
  end_seq: number | null;
  start_ms: number;
  end_ms: number | null;
  child_run_id: string | null;
}

/** A stretch in which the run waited; `to_ms` is null while it still does. */
export interface Pause {
  from_ms: number;
  to_ms: number | null;
}

const opens = new Set(["started", "spawned", "requested"]);
const closes = new Map<string, SpanStatus>([
  ["completed", "completed"],
  ["resolved", "completed"],
  ["failed", "failed"],
  ["cancelled", "failed"],
]);

/**
 * The spans of one run in order of their start, and their tree. Links are kept while spans arrive, so a
 * live run of any length costs the same per event.
 */
export class SpanTree {
  readonly spans: Span[] = [];
  readonly pauses: Pause[] = [];
  readonly #byId = new Map<string, Span>();
  readonly #children = new Map<string, Span[]>();
  /** Grows when a span is added or moves; a change of status alone does not change the tree. */
  shape = 0;
  root: Span | null = null;

  event(event: RunEvent): void {
    const family = familyOf(event.type);
    const verb = verbOf(event.type);
    const at = atMs(event.at);
    if (family === "run") return this.#run(event, verb, at);
    const span_id = spanIdOf(event, family);
    const status = closes.get(verb);
    if (opens.has(verb)) {
      if (span_id !== null) this.#open(event, span_id, family, at);
    } else if (status !== undefined) {
      this.#close(event, span_id ?? `#${event.seq}`, family, status, at);
    }
  }

  get(span_id: string): Span | null {
    return this.#byId.get(span_id) ?? null;
  }

  childrenOf(span: Span): readonly Span[] {
    return this.#children.get(span.span_id) ?? [];
  }

  /** Spans without a parent in this run hang below the run; before the run's own event they are alone. */
  roots(): readonly Span[] {
    return this.root === null ? (this.#children.get("") ?? []) : [this.root];
  }

  parentOf(span: Span): Span | null {
    if (span === this.root) return null;
    const parent = span.parent_span_id === null ? undefined : this.#byId.get(span.parent_span_id);
    return parent ?? this.root;
  }

  #run(event: RunEvent, verb: string, at: number): void {
    const root = this.root ?? this.#addRoot(event, at);
    const waiting = this.pauses.at(-1);
    const isWaiting = waiting !== undefined && waiting.to_ms === null;
    const status = closes.get(verb);
    if (verb === "started") root.start_ms = at;
    if ((verb === "waiting" || verb === "interrupted") && !isWaiting) {
      this.pauses.push({ from_ms: at, to_ms: null });
    }
    if (isWaiting && (verb === "resumed" || status !== undefined)) waiting.to_ms = at;
    if (status === undefined) return;
    root.end_ms = at;
    root.end_seq = event.seq;
    root.status = status;
  }

  #addRoot(event: RunEvent, at: number): Span {
    const name = titleOf(event.type, event.payload) || event.agent || "run";
    const root = this.#span(event, event.run_id, "run", at, name);
    root.parent_span_id = null;
    this.root = root;
    this.#byId.set(root.span_id, root);
    // Those that came first (a log whose beginning retention removed) move below it.
    const orphans = this.#children.get("") ?? [];
    this.#children.delete("");
    this.#children.set(root.span_id, [...orphans, ...(this.#children.get(root.span_id) ?? [])]);
    this.spans.push(root);
    this.shape += 1;
    return root;
  }

  #open(event: RunEvent, span_id: string, family: string, at: number): void {
    const known = this.#byId.get(span_id);
    if (known !== undefined) {
      // Started again (a retry under the same id): one bar, from the first start.
      known.status = "running";
      known.end_ms = null;
      known.end_seq = null;
      return;
    }
    this.#add(this.#span(event, span_id, family, at, nameOf(event, family)));
  }

  #close(event: RunEvent, span_id: string, family: string, status: SpanStatus, at: number): void {
    let span = this.#byId.get(span_id);
    if (span === undefined) {
      // Only its end is in the log: it began `duration_ms` earlier, or is a moment.
      const duration = fields(event.payload)["duration_ms"];
      const start = typeof duration === "number" && duration > 0 ? at - duration : at;
      span = this.#span(event, span_id, family, start, nameOf(event, family));
      this.#add(span);
    }
    span.status = status;
    span.end_ms = Math.max(at, span.start_ms);
    span.end_seq = event.seq;
  }

  #span(event: RunEvent, span_id: string, kind: string, start_ms: number, name: string): Span {
    return {
      index: this.spans.length,
      span_id,
      parent_span_id: event.parent_span_id ?? null,
      kind,
      name,
      agent: event.agent,
      status: "running",
      start_seq: event.seq,
      end_seq: null,
      start_ms,
      end_ms: null,
      child_run_id: kind === "worker" ? childRunOf(event) : null,
    };
  }

  #add(span: Span): void {
    this.spans.push(span);
    this.#byId.set(span.span_id, span);
    this.#link(span);
    this.#adopt(span);
    this.shape += 1;
  }

  #link(span: Span): void {
    const parent = this.parentOf(span);
    const key = parent === null ? "" : parent.span_id;
    const siblings = this.#children.get(key);
    if (siblings === undefined) this.#children.set(key, [span]);
    else siblings.push(span);
  }

  /** A child that was written before its parent moves below it. Rare: producers write parents first. */
  #adopt(parent: Span): void {
    const key = this.root?.span_id ?? "";
    if (!this.#waitingFor.has(parent.span_id)) {
      const wanted = this.spans.at(-1)?.parent_span_id;
      if (wanted && !this.#byId.has(wanted)) this.#waitingFor.add(wanted);
      return;
    }
    this.#waitingFor.delete(parent.span_id);
    const strays = this.#children.get(key) ?? [];
    const mine = strays.filter((span) => span.parent_span_id === parent.span_id && span !== parent);
    this.#children.set(key, strays.filter((span) => !mine.includes(span)));
    this.#children.set(parent.span_id, mine);
  }

  readonly #waitingFor = new Set<string>();
}

function spanIdOf(event: RunEvent, family: string): string | null {
  if (event.span_id) return event.span_id;
  const payload = fields(event.payload);
  if (family === "worker") return childRunOf(event);
  if (family === "interrupt") return textOf(payload["interrupt_id"]);
  if (family === "tool") return textOf(payload["tool_call_id"]);
  return null;
}

function childRunOf(event: RunEvent): string | null {
  const payload = fields(event.payload);
  return textOf(payload["run_id"]) ?? textOf(payload["child_run_id"]);
}

function nameOf(event: RunEvent, family: string): string {
  if (family === "message") return textOf(fields(event.payload)["role"]) ?? "message";
  const title = family === "reasoning" ? "" : titleOf(event.type, event.payload);
  return title || (family === "worker" ? "worker" : event.type.slice(0, event.type.lastIndexOf(".")));
}

/** The server's own timeline as the same tree, for the first paint. */
export function treeOfTimeline(timeline: Timeline): SpanTree {
  const origin = timeline.started_at === null ? 0 : atMs(timeline.started_at);
  const tree = new SpanTree();
  for (const from of timeline.spans) {
    const start_ms = origin + from.start_ms;
    const ended = from.duration_ms !== null && from.duration_ms !== undefined;
    tree.insert({
      index: 0,
      span_id: from.span_id,
      parent_span_id: from.parent_span_id ?? null,
      kind: from.kind,
      name: from.name,
      agent: from.agent ?? null,
      status: from.status,
      start_seq: from.start_seq,
      end_seq: from.end_seq ?? null,
      start_ms,
      end_ms: ended ? start_ms + (from.duration_ms as number) : null,
      child_run_id: from.child_run_id ?? null,
    });
  }
  return tree;
}
