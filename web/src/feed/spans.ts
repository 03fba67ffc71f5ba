import type { SpanStatus } from "@runreel/client";
import { familyOf } from "@runreel/client/fold";
import { verbOf } from "./read";
import type { EventRow } from "./row";
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
 * same family and `span_id` closes, an end without a start is a bar of its reported duration.
 */
export class Spans {
  readonly tree = new SpanTree();
  readonly pauses: Pause[] = [];
  /** The pauses in which a person was asked, which do not count as time of the spans around them. */
  readonly asked: Pause[] = [];
  /** The total time of tool calls, and of the model's answers. */
  tool_ms = 0;
  model_ms = 0;
  readonly #open = new Map<string, { span: Span; asked_ms: number }>();
  #hasStarted = false;
  /** The total time of waiting for persons, without the current wait. */
  #asked_ms = 0;

  take(row: EventRow): void {
    const kind = familyOf(row.type);
    const verb = verbOf(row.type);
    const at = row.at_ms;
    const { root } = this.tree;
    // A run that is reported late began with its earliest event.
    if (root !== null && this.#hasStarted) root.start_ms = Math.min(root.start_ms, at);
    if (kind === "run") this.#run(row, verb, at);
    else if (verb === "started" || verb === "spawned") this.#start(row, kind, at);
    else if (verb === "completed" || verb === "failed") this.#end(row, kind, verb, at);
  }

  /**
   * The stretches in which a span only waited: for the run every pause, for another span what its own duration leaves
   * of the time between its two events. Stretches that have not ended end at `now_ms`.
   */
  heldIn(span: Span, now_ms: number): { from_ms: number; to_ms: number }[] {
    const { start_ms, took_ms } = span;
    const isRoot = span === this.tree.root;
    const end_ms = Math.max(start_ms, span.end_ms ?? now_ms);
    const held = (isRoot ? this.pauses : this.asked)
      .map(({ from_ms, to_ms }) => ({
        from_ms: Math.max(from_ms, start_ms),
        to_ms: Math.min(to_ms ?? now_ms, end_ms),
      }))
      .filter(({ from_ms, to_ms }) => to_ms > from_ms);
    if (isRoot || took_ms === null) return held;
    const rest_ms = end_ms - start_ms - took_ms - lengthOf(held);
    // Its own duration includes the waits, so it was at work meanwhile.
    if (rest_ms < -tolerance_ms) return [];
    const isUnreported = rest_ms > Math.max(tolerance_ms, (end_ms - start_ms) * tolerance_share);
    return isUnreported ? withRest(held, end_ms, rest_ms) : held;
  }

  #run(row: EventRow, verb: string, at: number): void {
    const root = this.tree.root ?? this.tree.add(runSpan(row, at));
    const last = this.pauses.at(-1);
    const waiting = last !== undefined && last.to_ms === null ? last : null;
    const status = endOfRun.get(verb);
    // The time before the start is queueing, which bars do not include.
    if (verb === "started") root.start_ms = at;
    this.#hasStarted ||= verb === "started";
    const asking = this.asked.at(-1);
    if (asking?.to_ms === null) {
      asking.to_ms = Math.max(at, asking.from_ms);
      this.#asked_ms += asking.to_ms - asking.from_ms;
    }
    if (verb === "interrupted") this.asked.push({ from_ms: at, to_ms: null });
    if (verb === "waiting" || verb === "interrupted") {
      if (waiting === null) this.pauses.push({ from_ms: at, to_ms: null });
    } else if (waiting !== null && (verb === "resumed" || status !== undefined)) {
      waiting.to_ms = at;
    }
    if (status === undefined) return;
    if (verb === "failed") root.error = errorIn(row);
    root.status = status;
    root.end_ms = Math.max(at, root.start_ms);
    root.took_ms = root.end_ms - root.start_ms;
    root.end_seq = row.seq;
  }

  #start(row: EventRow, kind: string, at: number): void {
    const span = this.tree.add(spanOf(row, kind, at));
    // The part of the current wait before the span's start does not count for it.
    const asking = this.asked.at(-1);
    const asked_ms = this.#asked_ms + (asking?.to_ms === null ? Math.max(0, at - asking.from_ms) : 0);
    if (row.span_id) this.#open.set(keyOf(kind, row.span_id), { span, asked_ms });
  }

  #end(row: EventRow, kind: string, status: "completed" | "failed", at: number): void {
    const key = row.span_id ? keyOf(kind, row.span_id) : null;
    const own_ms = row.duration_ms;
    const opened = key === null ? undefined : this.#open.get(key);
    const earliest = this.tree.root?.start_ms ?? 0;
    const span = opened?.span ?? this.tree.add(spanOf(row, kind, Math.max(at - (own_ms ?? 0), earliest)));
    if (key !== null) this.#open.delete(key);
    span.status = status;
    if (status === "failed") span.error = errorIn(row);
    // A supervisor reports its workers when all have ended; each bar has the duration of its worker.
    const end_ms = kind === "worker" && own_ms ? Math.min(at, span.start_ms + own_ms) : at;
    span.end_ms = Math.max(end_ms, span.start_ms);
    const asked_ms = Math.max(0, this.#asked_ms - (opened?.asked_ms ?? this.#asked_ms));
    const rest_ms = Math.max(0, span.end_ms - span.start_ms - asked_ms);
    span.took_ms = kind === "worker" ? rest_ms : (own_ms ?? rest_ms);
    span.end_seq = row.seq;
    if (kind === "tool") this.tool_ms += span.took_ms;
    else if (kind === "message" || kind === "reasoning") this.model_ms += span.took_ms;
  }
}

/** Differences up to this are from clocks and rounding, not from waiting. */
const tolerance_ms = 1;
const tolerance_share = 0.02;

/** Adds waiting that no event reports, as late as possible. */
function withRest<T extends { from_ms: number; to_ms: number }>(
  held: readonly T[],
  end_ms: number,
  rest_ms: number,
) {
  const before = [...held];
  let from_ms = end_ms;
  let left_ms = rest_ms;
  for (let last = before.at(-1); last !== undefined && left_ms > from_ms - last.to_ms; last = before.at(-1)) {
    left_ms -= from_ms - last.to_ms;
    from_ms = last.from_ms;
    before.pop();
  }
  return [...before, { from_ms: from_ms - left_ms, to_ms: end_ms }];
}

export const lengthOf = (stretches: readonly { from_ms: number; to_ms: number }[]): number =>
  stretches.reduce((sum, { from_ms, to_ms }) => sum + to_ms - from_ms, 0);

/** The error in a title, after a name: `search error: timeout`. A name alone is not an error. */
function errorIn({ title, name }: EventRow): string {
  const rest = name !== null && title.startsWith(name) ? title.slice(name.length) : title;
  const at = rest.indexOf(error_sign);
  return at < 0 ? "" : rest.slice(at + error_sign.length);
}
const error_sign = "error: ";

/** The arguments in a title: `search(q: "x")`. */
function argsIn({ type, title }: EventRow): string {
  return type === "tool.started" ? title.slice(title.indexOf("(") + 1).replace(/\)$/, "") : "";
}

const keyOf = (kind: string, span_id: string) => `${kind} ${span_id}`;

function runSpan(row: EventRow, at: number): NewSpan {
  const span = { ...spanOf(row, "run", at), span_id: run_span, name: row.name ?? "run" };
  return { ...span, parent_span_id: null, child_run_id: null };
}

/** The id of the run's own span, which no other span can have. */
const run_span = "";

function spanOf(row: EventRow, kind: string, start_ms: number): NewSpan {
  const span_id = row.span_id || `seq-${row.seq}`;
  return {
    span_id,
    parent_span_id: row.parent_span_id,
    kind,
    name: row.name ?? span_id,
    status: "running",
    start_seq: row.seq,
    end_seq: null,
    start_ms,
    end_ms: null,
    took_ms: null,
    child_run_id: kind === "worker" ? row.child_run_id : null,
    preview: argsIn(row),
  };
}
