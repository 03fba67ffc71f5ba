import {
  RunreelError,
  type Problem,
  type Run,
  type RunEvent,
  type Timeline,
  type TimelineSpan,
} from "@runreel/client";
import { fields } from "@runreel/client/fold";
import { eventsAt, runs } from "../api/client";
import { usageOf, type CallUsage } from "../api/usage";
import { alignSpans, type Pair } from "./align";

/** Calls of models whose tokens are told at their steps. */
const calls_max = 1_000;

/** One of the two, as it was when it was read. */
export interface Side {
  run: Run;
  timeline: Timeline;
  /** By the seq of the event that told it. */
  calls: ReadonlyMap<number, CallUsage>;
}

/** What went in and out of a step. */
export interface Detail {
  input: unknown;
  output: unknown;
}

/** Two runs, read once: a comparison stands still. */
export class Comparison {
  a = $state.raw<Side | null>(null);
  b = $state.raw<Side | null>(null);
  pairs = $state.raw<readonly Pair[]>([]);
  isReading = $state(false);
  problem = $state.raw<{ side: "a" | "b"; problem: Problem } | null>(null);
  #abort = new AbortController();

  async read(a: string, b: string): Promise<void> {
    this.stop();
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    this.isReading = true;
    this.problem = null;
    const sides = await Promise.all([this.#side(a, "a", signal), this.#side(b, "b", signal)]);
    if (signal.aborted) return;
    [this.a, this.b] = sides;
    this.pairs = alignSpans(this.a?.timeline.spans ?? [], this.b?.timeline.spans ?? []);
    this.isReading = false;
  }

  stop(): void {
    this.#abort.abort();
  }

  /** What went in and out of both steps of a pair. */
  details({ a, b }: Pair): Promise<[Detail | null, Detail | null]> {
    return Promise.all([this.#detail(this.a, a), this.#detail(this.b, b)]);
  }

  async #side(run_id: string, side: "a" | "b", signal: AbortSignal): Promise<Side | null> {
    if (run_id === "") return null;
    try {
      const [run, timeline, usage] = await Promise.all([
        runs.get(run_id, signal),
        runs.timeline(run_id, signal),
        usageOf(run_id, { limit: calls_max }, signal),
      ]);
      return { run, timeline, calls: new Map(usage.calls.map((call) => [call.seq, call])) };
    } catch (error) {
      if (error instanceof RunreelError && !signal.aborted) this.problem ??= { side, problem: error.problem };
      return null;
    }
  }

  async #detail(side: Side | null, span: TimelineSpan | null): Promise<Detail | null> {
    if (side === null || span === null) return null;
    const seqs = [span.start_seq, ...(span.end_seq ? [span.end_seq] : [])];
    const events = await eventsAt(side.run.run_id, [...new Set(seqs)], this.#abort.signal);
    return detailOf(events);
  }
}

/** The payloads of the start and the end of a step, without what names the step and its time. */
export function detailOf(events: readonly RunEvent[]): Detail {
  const [first, last] = [events[0], events.at(-1)];
  const isOne = events.length < 2;
  const end = fields(last?.payload);
  const input = isOne ? {} : fields(first?.payload);
  return {
    input: input["args"] ?? input["input"] ?? without(input),
    output: end["result"] ?? end["output"] ?? end["error"] ?? without(end),
  };
}

const told = new Set(["name", "title", "duration_ms", "usage", "model", "role", "tool_call_id"]);

function without(payload: Record<string, unknown>): unknown {
  const rest = Object.entries(payload).filter(([name]) => !told.has(name));
  return rest.length === 0 ? undefined : Object.fromEntries(rest);
}
