import {
  FeedOrder,
  isEvent,
  RunreelError,
  withQuery,
  type Connection,
  type Problem,
  type Query,
  type Received,
  type Run,
  type RunEvent,
} from "@runreel/client";
import { isTerminal, statusAfter } from "@runreel/client/fold";
import { runs } from "../api/client";
import { follow, type Following } from "./follower";
import { hear } from "./hear";
import { LeaseWatch } from "./lease";

/** What an event says about its run's row. A pure function: `null` when the row already knows more. */
export function runAfter(run: Run, event: RunEvent): Run | null {
  if (event.seq <= run.last_seq) return null;
  const status = statusAfter(event.type) ?? run.status;
  return {
    ...run,
    status,
    last_seq: event.seq,
    last_event_at: event.at,
    stalled: false,
    started_at: event.type === "run.started" ? event.at : earlier(run.started_at ?? null, event.at),
    ended_at: isTerminal(status) ? (run.ended_at ?? event.at) : null,
  };
}

/** A run that is told of late began with the first thing that happened in it. The server's times compare as text. */
const earlier = (started_at: string | null, at: string) =>
  started_at !== null && at < started_at ? at : started_at;

/** Two looks at the list within this time are one. */
const relist_ms = 300;
const page_runs = 50;
const early_max = 10_000;

export interface KeptRuns {
  runs: readonly Run[];
  next_cursor: string | null;
}

/**
 * The list of runs, live. The feed is joined at its end first, the list is read after that: what happens
 * in between is in both and is told apart by seq.
 */
export class RunsStore {
  runs = $state.raw<Run[]>([]);
  next_cursor = $state.raw<string | null>(null);
  loaded = $state(false);
  problem = $state.raw<Problem | null>(null);
  connection = $state.raw<Connection>({ state: "connecting", gap: null });
  #filter: Query;
  readonly #changes = new Map<string, Run>();
  #byId = new Map<string, Run>();
  #stream: Following["stream"] | null = null;
  #undo: (() => void) | null = null;
  #abort = new AbortController();
  #relisting: ReturnType<typeof setTimeout> | null = null;
  readonly #leases = new LeaseWatch(() => this.#list(null));
  /** Events of runs that are not on the page, kept while a list is on its way that may bring them. */
  #early: RunEvent[] = [];
  #lists = 0;
  /** Moves with the filter, so that an answer to an older one is dropped. */
  #listings = 0;

  /** `kept`: what an earlier store of the same filter had, for a reader who comes back. */
  constructor(filter: Query, kept?: KeptRuns) {
    this.#filter = filter;
    if (kept === undefined) return;
    this.runs = [...kept.runs];
    this.next_cursor = kept.next_cursor;
    this.loaded = true;
    this.#byId = new Map(kept.runs.map((run) => [run.run_id, run]));
  }

  get kept(): KeptRuns {
    return { runs: this.runs, next_cursor: this.next_cursor };
  }

  start(): void {
    const { stream, stop } = follow({
      path: (cursor) =>
        withQuery("/api/stream/runs", {
          tokens: "false",
          role: this.#filter["role"] ?? null,
          tail: cursor === null ? 0 : null,
        }),
      order: new FeedOrder(),
      take: (received) => this.#take(received),
      commit: () => this.#commit(),
      changed: (connection) => this.#changed(connection),
    });
    this.#stream = stream;
    this.#undo = stop;
  }

  stop(): void {
    this.#abort.abort();
    if (this.#relisting !== null) clearTimeout(this.#relisting);
    this.#leases.stop();
    this.#undo?.();
  }

  retryNow(): void {
    this.#stream?.retryNow();
  }

  /** Another filter; the rows stay until the new ones are here. Routers have a stream that others are not in. */
  filterBy(filter: Query): void {
    if (JSON.stringify(filter) === JSON.stringify(this.#filter)) return;
    const isOtherRole = (filter["role"] ?? "") !== (this.#filter["role"] ?? "");
    this.#filter = filter;
    this.#listings += 1;
    this.next_cursor = null;
    if (isOtherRole && this.#undo !== null) {
      this.#undo();
      this.start();
    } else if (this.loaded) void this.#list(null);
  }

  async more(): Promise<void> {
    await this.#list(this.next_cursor);
  }

  #changed(connection: Connection): void {
    this.connection = connection;
    if (connection.state === "failed") this.problem = connection.error.problem;
  }

  #take({ event }: Received): void {
    // After a (re)connect the list is read once the feed stands at its end.
    if (event.type === "stream.caught_up" || event.type === "stream.gap") return this.#relist(0);
    if (!isEvent(event)) return;
    hear(event.type);
    const run = this.#changes.get(event.run_id) ?? this.#byId.get(event.run_id);
    if (run === undefined) return this.#relistFor(event);
    const next = runAfter(run, event);
    if (next === null) return;
    this.#changes.set(event.run_id, next);
    if (next.status !== run.status && this.#filter["status"]) this.#relist(relist_ms);
  }

  /** An event of a run that is not on this page: only a new run, or one whose status moved, may belong here. */
  #relistFor(event: RunEvent): void {
    const status = statusAfter(event.type);
    if ((this.#lists > 0 || this.#relisting !== null) && this.#early.length < early_max)
      this.#early.push(event);
    if (status === null) return;
    if (event.type === "run.created" || this.#filter["status"]) this.#relist(relist_ms);
  }

  #commit(): void {
    if (this.#changes.size === 0) return;
    this.runs = this.runs.map((run) => this.#changes.get(run.run_id) ?? run);
    this.#index();
    this.#changes.clear();
  }

  #relist(delay_ms: number): void {
    if (this.#relisting !== null) return;
    this.#relisting = setTimeout(() => {
      this.#relisting = null;
      void this.#list(null);
    }, delay_ms);
  }

  async #list(cursor: string | null): Promise<void> {
    const { signal } = this.#abort;
    const listing = this.#listings;
    this.#lists += 1;
    try {
      const page = await runs.list({ ...this.#filter, limit: page_runs, cursor }, signal);
      if (listing !== this.#listings) return;
      // What the feed has told meanwhile is newer than the page.
      const fresh = page.runs.map((run) =>
        newer(run, this.#changes.get(run.run_id) ?? this.#byId.get(run.run_id)),
      );
      this.runs = cursor === null ? this.#joined(fresh) : [...this.runs, ...fresh];
      if (cursor !== null || this.next_cursor === null || !this.loaded)
        this.next_cursor = page.next_cursor ?? null;
      this.#index();
      this.loaded = true;
      this.problem = null;
    } catch (error) {
      if (error instanceof RunreelError && !signal.aborted) this.problem = error.problem;
    } finally {
      this.#lists -= 1;
    }
    this.#takeEarly();
  }

  #takeEarly(): void {
    const early = this.#early;
    this.#early = [];
    for (const event of early) {
      const run = this.#changes.get(event.run_id) ?? this.#byId.get(event.run_id);
      const next = run === undefined ? null : runAfter(run, event);
      if (next !== null) this.#changes.set(event.run_id, next);
    }
    this.#commit();
  }

  /** A fresh first page before the older pages that were already opened. */
  #joined(fresh: Run[]): Run[] {
    const last = fresh.at(-1);
    if (last === undefined || fresh.length < page_runs) return fresh;
    const older = this.runs.filter((run) => run.created_at < last.created_at);
    return [...fresh, ...older];
  }

  #index(): void {
    this.#leases.watch(this.runs);
    this.#byId = new Map(this.runs.map((run) => [run.run_id, run]));
  }
}

const newer = (told: Run, known: Run | undefined): Run =>
  known !== undefined && known.last_seq > told.last_seq ? { ...told, ...known } : told;
