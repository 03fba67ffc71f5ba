import {
  RunreelError,
  type Problem,
  type Run,
  type RunEvent,
  type Timeline,
  type TimelineSpan,
} from "@runreel/client";
import { failureOf, fields } from "@runreel/client/fold";
import { eventsAt, runs } from "../api/client";
import { usageOf, type CallUsage } from "../api/usage";
import { alignSpans, type Pair } from "./align";
import { errorLine, failureText } from "./failure";

/** Maximum number of model calls whose tokens are shown at their steps. */
const calls_max = 1_000;

/** Maximum number of pairs whose contents are compared, and how many at a time. */
export const said_max = 4_000;
const said_at_once = 250;

/** One of the two runs, as it was when it was read. */
export interface Side {
  run: Run;
  timeline: Timeline;
  /** By the seq of their events. */
  calls: ReadonlyMap<number, CallUsage>;
}

/** The input and the output of a step. */
export interface Detail {
  input: unknown;
  output: unknown;
}

/** Two runs, read once: a comparison is not live. */
export class Comparison {
  a = $state.raw<Side | null>(null);
  b = $state.raw<Side | null>(null);
  pairs = $state.raw<readonly Pair[]>([]);
  /** The pairs whose arguments, texts or results differ. */
  changed = $state.raw<ReadonlySet<Pair>>(new Set());
  /** The contents of the steps are still being compared. */
  isComparing = $state(false);
  /** Why the contents could not be compared, or not all of them. */
  uncompared = $state.raw<string | null>(null);
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
    await this.#compare(signal);
  }

  stop(): void {
    this.#abort.abort();
  }

  /** Reads the contents of both steps of each pair, and keeps only whether they differ. */
  async #compare(signal: AbortSignal): Promise<void> {
    const { a, b } = this;
    const both = this.pairs.filter((pair) => pair.a !== null && pair.b !== null);
    const pairs = both.slice(0, said_max);
    this.changed = new Set();
    this.uncompared =
      both.length > said_max ? `What steps say is compared for the first ${said_max} pairs` : null;
    if (a === null || b === null) return;
    this.isComparing = true;
    try {
      for (let from = 0; from < pairs.length; from += said_at_once) {
        const some = pairs.slice(from, from + said_at_once);
        const [inA, inB] = await Promise.all([
          this.#contents(
            a,
            some.map((pair) => pair.a as TimelineSpan),
            signal,
          ),
          this.#contents(
            b,
            some.map((pair) => pair.b as TimelineSpan),
            signal,
          ),
        ]);
        const found = some.filter((_, at) => !isSame(inA[at], inB[at]));
        if (signal.aborted) return;
        this.changed = new Set([...this.changed, ...found]);
      }
    } catch (error) {
      if (!(error instanceof RunreelError) || signal.aborted) return;
      this.uncompared = `What steps say could not be compared: ${error.message}`;
    } finally {
      if (!signal.aborted) this.isComparing = false;
    }
  }

  async #contents({ run }: Side, spans: readonly TimelineSpan[], signal: AbortSignal): Promise<Detail[]> {
    const seqs = spans.flatMap(({ kind, start_seq, end_seq }) =>
      kind === "run" ? [] : [start_seq, ...(end_seq ? [end_seq] : [])],
    );
    const events = new Map(
      (await eventsAt(run.run_id, [...new Set(seqs)], signal)).map((event) => [event.seq, event]),
    );
    return spans.map(({ kind, start_seq, end_seq }) => {
      if (kind === "run") return { input: run.input, output: run.output ?? errorLine(run.error) };
      const own = [start_seq, end_seq === start_seq ? null : end_seq].map((seq) => events.get(seq ?? 0));
      return detailOf(own.filter((event) => event !== undefined));
    });
  }

  /** The input and the output of both steps of a pair. */
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

/** Whether two values are equal, apart from the order of members and the ids that each run has of its own. */
export function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one ?? null, compared) === JSON.stringify(other ?? null, compared);
}

const ofRun = new Set(["run_id", "message_id", "tool_call_id", "toolCallId", "call_id", "artifact_id"]);

function compared(_: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  // The id of a call is the provider's.
  const isCall = "args" in value || "arguments" in value || "function" in value || "input" in value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name]) => !ofRun.has(name) && !(isCall && name === "id"))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  );
}

/** A step's input and output from the payloads of its start and end, without the members of `omitted`. */
export function detailOf(events: readonly RunEvent[]): Detail {
  const [first, last] = [events[0], events.at(-1)];
  const isOne = events.length < 2;
  const end = fields(last?.payload);
  const input = isOne ? {} : fields(first?.payload);
  const failure = last?.type.endsWith(".failed") ? failureOf(end) : null;
  return {
    input: input["args"] ?? input["input"] ?? without(input),
    output: end["result"] ?? end["output"] ?? (failure === null ? without(end) : failureText(failure)),
  };
}

const omitted = new Set(["name", "title", "duration_ms", "usage", "model", "role", "tool_call_id"]);

function without(payload: Record<string, unknown>): unknown {
  const rest = Object.entries(payload).filter(([name]) => !omitted.has(name));
  return rest.length === 0 ? undefined : Object.fromEntries(rest);
}
