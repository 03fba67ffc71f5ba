import {
  RunOrder,
  RunreelError,
  type Connection,
  type EventStream,
  type Problem,
  type Run,
  type RunEvent,
  type RunStatus,
  type Timeline,
} from "@runreel/client";
import { isTerminal } from "@runreel/client/fold";
import { eventAfter, runs } from "../api/client";
import { RunView } from "./fold";
import { follow } from "./follower";
import { LeaseWatch } from "./lease";
import { atMs } from "./read";
import { treeOfTimeline } from "./spans";
import type { SpanTree } from "./tree";

/**
 * One run on the screen. The view is plain data that grows in place; `version` is the only thing that
 * components watch, and it moves once per drawn frame.
 */
export class RunStore {
  readonly run_id: string;
  readonly view = new RunView();
  version = $state(0);
  connection = $state.raw<Connection>({ state: "connecting", gap: null });
  run = $state.raw<Run | null>(null);
  timeline = $state.raw<Timeline | null>(null);
  problem = $state.raw<Problem | null>(null);
  children = $state.raw<Run[]>([]);
  #firstTree: SpanTree | null = null;
  readonly #order = new RunOrder();
  #stream: EventStream | null = null;
  #undo: (() => void) | null = null;
  #abort = new AbortController();
  readonly #leases = new LeaseWatch(() => this.#look());

  constructor(run_id: string) {
    this.run_id = run_id;
  }

  start(): void {
    const { stream, stop } = follow({
      path: () => `/api/stream/runs/${this.run_id}`,
      order: this.#order,
      take: (received) => this.view.take(received),
      commit: () => (this.version += 1),
      changed: (connection) => this.#changed(connection),
    });
    this.#stream = stream;
    this.#undo = stop;
    void this.#describe();
  }

  stop(): void {
    this.#abort.abort();
    this.#leases.stop();
    this.#undo?.();
  }

  retryNow(): void {
    this.#stream?.retryNow();
  }

  get status(): RunStatus {
    return this.view.status ?? this.run?.status ?? "queued";
  }

  /** Its producer was silent for longer than its lease, and nothing came since that was found out. */
  get isStalled(): boolean {
    const told = this.run;
    return told !== null && told.stalled && !isTerminal(this.status) && this.view.last_seq <= told.last_seq;
  }

  get started_ms(): number | null {
    const told = this.run?.started_at ?? null;
    return this.view.started_ms ?? (told === null ? null : atMs(told));
  }

  get ended_ms(): number | null {
    const told = this.run?.ended_at ?? null;
    return this.view.ended_ms ?? (told === null ? null : atMs(told));
  }

  /** The spans of the feed, or the server's own while the feed is still behind them. */
  get tree(): SpanTree {
    const told = this.timeline;
    if (told === null || this.#firstTree === null) return this.view.spans.tree;
    if (this.view.last_seq < told.last_seq) return this.#firstTree;
    this.#firstTree = null;
    return this.view.spans.tree;
  }

  /** The whole event: from what the feed brought, or asked for again when that was forgotten. */
  async event(seq: number): Promise<RunEvent | null> {
    const bytes = this.view.bodies.get(seq);
    if (bytes !== null) return JSON.parse(bytes) as RunEvent;
    return eventAfter(this.run_id, this.#order.idOf(seq - 1), seq, this.#abort.signal);
  }

  async #describe(): Promise<void> {
    const { signal } = this.#abort;
    try {
      const [run, timeline] = await Promise.all([
        runs.get(this.run_id, signal),
        runs.timeline(this.run_id, signal),
      ]);
      if (this.timeline === null && this.view.last_seq < timeline.last_seq) {
        this.#firstTree = treeOfTimeline(timeline);
      }
      this.run = run;
      this.timeline = timeline;
      this.#leases.watch([run]);
      this.children = (await runs.list({ parent_run_id: this.run_id, limit: 50 }, signal)).runs;
    } catch (error) {
      if (error instanceof RunreelError && !signal.aborted) this.problem = error.problem;
    }
  }

  /** A heartbeat is no event: whether one is overdue, the server has to be asked. */
  async #look(): Promise<void> {
    try {
      const run = await runs.get(this.run_id, this.#abort.signal);
      this.run = run;
    } catch (error) {
      if (!(error instanceof RunreelError)) throw error;
    }
    if (!isTerminal(this.status) && this.run !== null) this.#leases.watch([this.run]);
  }

  #changed(connection: Connection): void {
    this.connection = connection;
    if (connection.state === "failed") this.problem = connection.error.problem;
    // The feed carries the spans; the sums and the run's result are worth one more look at the end.
    const isOver = connection.state === "ended" && !isTerminal(this.run?.status ?? "");
    if (isOver) void this.#describe();
  }
}
