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
import { hear } from "./hear";
import { LeaseWatch } from "./lease";
import { atMs } from "./read";
import { treeOfTimeline } from "./spans";
import type { SpanTree } from "./tree";

const children_max = 200;
/** Between two looks at children that go on; and after an event that tells of them. */
const children_ms = 5_000;
const soon_ms = 300;

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
  #childEvents = 0;
  #childrenTimer: ReturnType<typeof setTimeout> | null = null;

  constructor(run_id: string) {
    this.run_id = run_id;
  }

  start(): void {
    const { stream, stop } = follow({
      path: () => `/api/stream/runs/${this.run_id}`,
      order: this.#order,
      take: (received) => {
        this.view.take(received);
        // What was asked before is in the list already.
        if (this.view.caughtUp) hear(received.event.type);
      },
      commit: () => this.#commit(),
      changed: (connection) => this.#changed(connection),
    });
    this.#stream = stream;
    this.#undo = stop;
    void this.#describe();
  }

  #commit(): void {
    this.version += 1;
    if (this.view.children === this.#childEvents) return;
    this.#childEvents = this.view.children;
    // The first look is that of `#describe`.
    if (this.run !== null && this.view.caughtUp) this.#lookLater(soon_ms);
  }

  stop(): void {
    this.#abort.abort();
    if (this.#childrenTimer !== null) clearTimeout(this.#childrenTimer);
    this.#leases.stop();
    this.#undo?.();
  }

  retryNow(): void {
    this.#stream?.retryNow();
  }

  /** What the feed tells is older than what the server told, until it has passed that. */
  get #isBehind(): boolean {
    return this.run !== null && this.view.last_seq < this.run.last_seq && !this.view.caughtUp;
  }

  get status(): RunStatus {
    const told = this.run?.status;
    return (this.#isBehind ? told : this.view.status) ?? told ?? "queued";
  }

  /** Its producer was silent for longer than its lease, and nothing came since that was found out. */
  get isStalled(): boolean {
    const told = this.run;
    return told !== null && told.stalled && !isTerminal(this.status) && this.view.last_seq <= told.last_seq;
  }

  get started_ms(): number | null {
    const told = this.run?.started_at ? atMs(this.run.started_at) : null;
    return (this.#isBehind ? told : this.view.started_ms) ?? told;
  }

  get ended_ms(): number | null {
    const told = this.run?.ended_at ? atMs(this.run.ended_at) : null;
    return (this.#isBehind ? told : this.view.ended_ms) ?? told;
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
      // Neither waits for the other: a long timeline takes a while.
      const timeline = runs.timeline(this.run_id, signal);
      timeline.catch(() => undefined);
      this.run = await runs.get(this.run_id, signal);
      this.#leases.watch([this.run]);
      void this.lookAtChildren();
      this.#told(await timeline);
    } catch (error) {
      if (error instanceof RunreelError && !signal.aborted) this.problem = error.problem;
    }
  }

  #told(timeline: Timeline): void {
    if (this.timeline === null && this.view.last_seq < timeline.last_seq)
      this.#firstTree = treeOfTimeline(timeline);
    this.timeline = timeline;
  }

  /** The runs below this one; asked for again while some of them go on. */
  async lookAtChildren(): Promise<void> {
    if (this.#childrenTimer !== null) clearTimeout(this.#childrenTimer);
    this.#childrenTimer = null;
    const { signal } = this.#abort;
    try {
      this.children = (await runs.list({ parent_run_id: this.run_id, limit: children_max }, signal)).runs;
    } catch {
      // The next look may find them.
    }
    if (!signal.aborted && this.children.some((child) => !isTerminal(child.status)))
      this.#lookLater(children_ms);
  }

  #lookLater(after_ms: number): void {
    this.#childrenTimer ??= setTimeout(() => {
      this.#childrenTimer = null;
      // A tab that nobody sees asks when it is seen again.
      if (document.visibilityState === "hidden") this.#lookLater(children_ms);
      else void this.lookAtChildren();
    }, after_ms);
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
