import {
  isEvent,
  RunOrder,
  RunreelError,
  type Connection,
  type Problem,
  type Run,
  type RunEvent,
  type RunStatus,
  type StreamEvent,
} from "@runreel/client";
import { fields, isTerminal } from "@runreel/client/fold";
import { eventsAt, indexOf, runs } from "../api/client";
import { rowsBetween } from "./indexpages";
import { RunView } from "./fold";
import { follow, type Following } from "./follower";
import { hear } from "./hear";
import { atMs } from "./read";
import { rowsOf } from "./row";
import type { SpanTree } from "./tree";
import type { Usage } from "./usage.svelte";

/** Rows of the first page: a screen of them, and some more. */
const first_rows = 1_000;
/** Maximum number of rows that are read without being asked for. */
const rows_max = 200_000;
const opened_max = 20;
/** By then the server has sent `stream.stalled` to connected readers. */
const stalled_ms = 5_000;

/**
 * One run on the screen. Its index is read from the newest page back, payloads only when they are opened, and later
 * events arrive in full. The view is plain data that grows in place; `version` is the only thing that components
 * watch, and it changes once per drawn frame.
 */
export class RunStore {
  readonly run_id: string;
  version = $state(0);
  connection = $state.raw<Connection>({ state: "connecting", gap: null });
  run = $state.raw<Run | null>(null);
  problem = $state.raw<Problem | null>(null);
  /** The number of rows that are not read before they are asked for. */
  rest = $state(0);
  isComplete = $state(false);
  /** The seq after which the run is shown as it was then; null for the present. */
  at = $state.raw<number | null>(null);
  /** Grows when rows were put before those that are shown. */
  joins = 0;
  /** Child runs that are shown within this one. */
  opened = $state.raw<ReadonlyMap<string, RunStore>>(new Map());
  /** What is shown: the end of the run until its beginning has been read, or the beginning until it reaches the end. */
  view = new RunView();
  /** The view that takes the events of the stream. */
  #end = this.view;
  #order = new RunOrder();
  #stream: Following["stream"] | null = null;
  #undo: (() => void) | null = null;
  #abort = new AbortController();
  #more: (() => void) | null = null;
  /** Loaded with the first page: no event arrives in full before it. */
  #rowOf: typeof import("./eventrow").rowOf = () => {
    throw new Error("an event before the index");
  };

  /** The number of model calls since the page was opened. */
  calls = 0;
  #usage: Promise<Usage> | null = null;

  /** `fromStart`: shown from its beginning, even while it is running. */
  constructor(
    run_id: string,
    readonly fromStart = false,
  ) {
    this.run_id = run_id;
  }

  start(): void {
    const order = () => this.#order;
    const { stream, stop } = follow({
      path: () => `/api/stream/runs/${this.run_id}`,
      begin: () => this.#begin(),
      order: {
        get cursor() {
          return order().cursor;
        },
        take: (event, id) => order().take(event, id),
        skipTo: (seq) => order().skipTo(seq),
        caughtUp: (last_seq) => order().caughtUp(last_seq),
      },
      take: (received) => {
        const { event, data } = received;
        if (isEvent(event)) {
          this.#end.take(this.#rowOf(event), event, data);
          if ("usage" in fields(event.payload)) this.calls += 1;
        } else {
          this.#end.takeFrame(event);
          this.#takeStalled(event);
        }
        // Earlier interrupts are in the inbox already.
        if (this.#end.caughtUp) hear(received.event.type);
      },
      commit: () => this.#commit(),
      changed: (connection) => this.#changed(connection),
    });
    this.#stream = stream;
    this.#undo = stop;
  }

  stop(): void {
    this.#abort.abort();
    for (const child of this.opened.values()) child.stop();
    this.#undo?.();
  }

  retryNow(): void {
    this.#stream?.retryNow();
  }

  /** Shows a child run within this one, from its beginning. */
  open(run_id: string): void {
    if (this.opened.has(run_id) || this.opened.size >= opened_max) return;
    const child = new RunStore(run_id, true);
    child.start();
    this.opened = new Map([...this.opened, [run_id, child]]);
  }

  shut(run_id: string): void {
    this.opened.get(run_id)?.stop();
    this.opened = new Map([...this.opened].filter(([id]) => id !== run_id));
  }

  /** Reads the remaining rows. */
  readRest(): void {
    this.#more?.();
  }

  /** Whether the stream has not yet reached the state in which the server returned the run. */
  get #isBehind(): boolean {
    return this.run !== null && this.#end.last_seq < this.run.last_seq && !this.#end.caughtUp;
  }

  get status(): RunStatus {
    void this.version;
    if (this.at !== null) return this.view.status ?? "queued";
    const known = this.run?.status;
    return (this.#isBehind ? known : this.#end.status) ?? known ?? "queued";
  }

  /** Its producer was silent for longer than its lease, and no event has arrived since that was detected. */
  get isStalled(): boolean {
    const { run } = this;
    if (this.at !== null) return false;
    return run !== null && run.stalled && !isTerminal(this.status) && this.last_seq <= run.last_seq;
  }

  get started_ms(): number | null {
    const known = this.run?.started_at ? atMs(this.run.started_at) : null;
    const seen = this.view.started_ms;
    return known !== null && seen !== null ? Math.min(known, seen) : (seen ?? known);
  }

  get ended_ms(): number | null {
    return this.at === null ? this.end_ms : this.view.ended_ms;
  }

  /** When it ended, also while an earlier state is shown. */
  get end_ms(): number | null {
    const known = this.run?.ended_at ? atMs(this.run.ended_at) : null;
    return (this.#isBehind ? known : this.#end.ended_ms) ?? known;
  }

  get last_seq(): number {
    return this.#end.last_seq;
  }

  get tree(): SpanTree {
    return this.view.spans.tree;
  }

  /** Everything that has arrived, whatever is shown. */
  get now(): RunView {
    return this.#end;
  }

  /** Shows an earlier state, or the present one. */
  show(at: number | null, view: RunView = this.#end): void {
    this.at = at;
    this.view = view;
    this.version += 1;
  }

  /** The whole event, as it arrived or requested. */
  async event(seq: number): Promise<RunEvent | null> {
    return (await this.events([seq])).get(seq) ?? null;
  }

  async events(seqs: readonly number[]): Promise<Map<number, RunEvent>> {
    const { bodies } = this.#end;
    const found = new Map<number, RunEvent>();
    const missing: number[] = [];
    for (const seq of seqs) {
      const bytes = bodies.get(seq);
      if (bytes === null) missing.push(seq);
      else found.set(seq, JSON.parse(bytes) as RunEvent);
    }
    if (missing.length === 0) return found;
    for (const event of await eventsAt(this.run_id, missing, this.#abort.signal)) {
      bodies.put(event.seq, JSON.stringify(event));
      found.set(event.seq, event);
    }
    return found;
  }

  /** Tokens and cost, loaded at the first call. */
  usage(): Promise<Usage> {
    this.#usage ??= import("./usage.svelte").then(({ Usage }) => new Usage(this.run_id, this.#abort.signal));
    return this.#usage;
  }

  /** Before the first connection: reads the run, its newest rows, and the cursor after them. */
  async #begin(): Promise<void> {
    const { signal } = this.#abort;
    const [run, page, { rowOf }] = await Promise.all([
      runs.get(this.run_id, signal),
      indexOf(this.run_id, null, first_rows, signal),
      import("./eventrow"),
    ]);
    this.#rowOf = rowOf;
    this.run = run;
    this.#order = new RunOrder(page.last_id ?? null);
    const rows = rowsOf(page);
    for (const row of rows) this.#end.takeRow(row);
    const first_seq = rows[0]?.seq ?? 1;
    const isWhole = (page.next_before ?? null) === null;
    if (isWhole) this.#complete(first_seq);
    else {
      if (this.fromStart || isTerminal(run.status)) this.view = new RunView(this.#end.bodies);
      void this.#readBack(first_seq, page.last_seq);
    }
    this.#commit();
  }

  /** Reads the rows before the newest ones, from the first one on, and joins both. */
  async #readBack(to: number, last_seq: number): Promise<void> {
    const { signal } = this.#abort;
    const whole = this.view === this.#end ? new RunView(this.#end.bodies) : this.view;
    const asked = new Promise<void>((more) => (this.#more = more));
    // Of a run that is too long to be read unasked, only the end is shown.
    if (whole !== this.view && last_seq > rows_max) await this.#rest(to - 1, asked);
    try {
      for await (const rows of rowsBetween(this.run_id, 1, to, signal)) {
        for (const row of rows) whole.takeRow(row);
        this.#commit();
        if (whole.rows.length >= rows_max) await this.#rest(to - whole.rows.length - 1, asked);
      }
      if (signal.aborted) return;
      whole.join(this.#end);
      if (this.view !== whole) this.joins += 1;
      this.view = this.#end = whole;
      this.#complete(whole.rows[0]?.seq ?? 1);
      this.#commit();
    } catch (error) {
      if (error instanceof RunreelError && !signal.aborted) this.problem = error.problem;
    }
  }

  async #rest(rows: number, asked: Promise<void>): Promise<void> {
    this.rest = Math.max(0, rows);
    await asked;
    this.rest = 0;
  }

  #complete(first_seq: number): void {
    this.isComplete = true;
    if (first_seq > 1) this.view.gaps.unshift({ type: "stream.gap", requested_after: 0, first_seq });
  }

  #commit(): void {
    this.version += 1;
  }

  /** That a producer fell silent is not an event: the server tells connected readers, others have to ask. */
  #takeStalled(event: StreamEvent): void {
    const { run } = this;
    if (run === null) return;
    if (event.type === "stream.stalled" && event.last_seq >= this.last_seq)
      this.run = { ...run, stalled: event.stalled, last_seq: Math.max(run.last_seq, event.last_seq) };
    if (event.type !== "stream.caught_up" || !run.lease_ms || isTerminal(this.status)) return;
    void this.#refresh();
    // If the silence ended before the server checked, no frame says so.
    setTimeout(() => this.run?.stalled && !this.#abort.signal.aborted && this.#refresh(), stalled_ms);
  }

  async #refresh(): Promise<void> {
    try {
      this.run = await runs.get(this.run_id, this.#abort.signal);
    } catch {
      // The known state stays; or the page was left.
    }
  }

  #changed(connection: Connection): void {
    this.connection = connection;
    if (connection.state === "failed") this.problem = connection.error.problem;
    // The run's result is read once more at the end.
    if (connection.state !== "ended" || isTerminal(this.run?.status ?? "")) return;
    void this.#refresh();
  }
}
