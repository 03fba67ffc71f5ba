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
  type StreamEvent,
} from "@runreel/client";
import { fields, isTerminal, statusAfter, textOf } from "@runreel/client/fold";
import type { SearchState } from "../api/runlists";
import { runs } from "../api/client";
import { descendantsOf } from "./descendants";
import { follow, type Following } from "./follower";
import { hear } from "./hear";
import { isBelow, newer, placeOf, runAfter } from "./runrow";

/** By then the server has checked for silent runs. */
const stalled_ms = 5_000;
/** Requests for the list within this time are combined. */
const relist_ms = 300;
/** The delay before a search whose index was behind is repeated. */
const lag_ms = 2_000;
/** The pause between two requests for the list, as a multiple of the duration of one. */
const rest = 4;
const page_runs = 50;
const early_chars_max = 4_000_000;

export interface KeptRuns {
  runs: readonly Run[];
  next_cursor: string | null;
  below: ReadonlyMap<string, readonly Run[]>;
}

/**
 * The list of runs, live. The feed is joined at its end first, the list is read after that: what happens
 * in between is in both, and is deduplicated by seq. A list with the newest first stays in order; in any other order
 * the rows stay where they are, and `moved` is the number of runs whose place has changed.
 */
export class RunsStore {
  runs = $state.raw<readonly Run[]>([]);
  /** The descendants that were unfolded, by the id of the run above them. */
  below = $state.raw<ReadonlyMap<string, readonly Run[]>>(new Map());
  next_cursor = $state.raw<string | null>(null);
  searched = $state.raw<SearchState | null>(null);
  moved = $state.raw(0);
  /** Grows when a run began or its status changed, whether or not it is on the page. */
  turns = $state.raw(0);
  loaded = $state(false);
  /** Whether the answer to a new query is pending. */
  isAsking = $state(false);
  problem = $state.raw<Problem | null>(null);
  connection = $state.raw<Connection>({ state: "connecting", gap: null });
  #query: Query;
  readonly #changes = new Map<string, Run>();
  #byId = new Map<string, Run>();
  #stream: Following["stream"] | null = null;
  readonly #moved = new Set<string>();
  /** Unfolded runs with a new run below them. */
  readonly #grown = new Set<string>();
  #took_ms = 0;
  #turns = 0;
  #undo: (() => void) | null = null;
  #abort = new AbortController();
  #relisting: ReturnType<typeof setTimeout> | null = null;
  #recheck: ReturnType<typeof setTimeout> | null = null;
  /** Events of runs that are not on the page, kept while a list is pending that may contain these runs. */
  #early: RunEvent[] = [];
  #early_chars = 0;
  #lists = 0;
  /** Changes with the query, so that an answer to an older one is dropped. */
  #listings = 0;

  /** `kept`: the rows of an earlier store of the same query, for a reader who comes back to the page. */
  constructor(query: Query, kept?: KeptRuns) {
    this.#query = query;
    if (kept === undefined) return;
    this.runs = kept.runs;
    this.below = kept.below;
    this.next_cursor = kept.next_cursor;
    this.loaded = true;
    this.#index();
  }

  get kept(): KeptRuns {
    return { runs: this.runs, next_cursor: this.next_cursor, below: this.below };
  }

  start(): void {
    const { stream, stop } = follow({
      path: (cursor) =>
        withQuery("/api/stream/runs", {
          tokens: "false",
          role: this.#query["role"] ?? null,
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
    if (this.#recheck !== null) clearTimeout(this.#recheck);
    this.#undo?.();
  }

  retryNow(): void {
    this.#stream?.retryNow();
    void this.#list(null);
  }

  /** Sets another query; the rows stay until the new ones arrive. Routers are in a stream of their own. */
  ask(query: Query): void {
    if (JSON.stringify(query) === JSON.stringify(this.#query)) return;
    const isOtherRole = (query["role"] ?? "") !== (this.#query["role"] ?? "");
    this.#query = query;
    this.#listings += 1;
    this.next_cursor = null;
    this.isAsking = true;
    this.#forgetMoved();
    if (isOtherRole && this.#undo !== null) {
      this.#undo();
      this.start();
    } else if (this.loaded || this.#lists > 0 || this.problem !== null) void this.#list(null);
  }

  async more(): Promise<void> {
    await this.#list(this.next_cursor);
  }

  /** Puts the rows in their present order. */
  async reorder(): Promise<void> {
    this.#forgetMoved();
    await this.#list(null, true);
  }

  /** Reads the descendants of a run; without `isOpen` they are folded again. */
  async unfold(root: Run, isOpen: boolean): Promise<void> {
    try {
      const found = isOpen ? await descendantsOf(root, this.#abort.signal) : null;
      const below = new Map(this.below);
      below.delete(root.run_id);
      if (found !== null) {
        const fresh = found.map((run) =>
          newer(run, this.#changes.get(run.run_id) ?? this.#byId.get(run.run_id)),
        );
        below.set(root.run_id, fresh);
      }
      this.below = below;
      this.#index();
    } catch (error) {
      this.#refused(error);
    }
  }

  get #isLive(): boolean {
    return (this.#query["sort"] ?? "created") === "created" && this.#query["order"] !== "asc";
  }

  get #hasRoots(): boolean {
    return this.#query["roots"] === true;
  }

  #changed(connection: Connection): void {
    this.connection = connection;
    if (connection.state === "failed") this.problem = connection.error.problem;
  }

  #take({ event, data }: Received): void {
    // After a (re)connect the list is read once the feed is at its end.
    if (event.type === "stream.caught_up" || event.type === "stream.gap") {
      this.#checkStalled();
      return this.#relist(0);
    }
    if (event.type === "stream.stalled") return this.#takeStalled(event);
    if (!isEvent(event)) return;
    hear(event.type);
    const status = statusAfter(event.type);
    if (status !== null) this.#turns += 1;
    const run = this.#changes.get(event.run_id) ?? this.#byId.get(event.run_id);
    if (run === undefined) return this.#takeUnknown(event, data.length);
    const next = runAfter(run, event);
    if (next === null) return;
    this.#changes.set(event.run_id, next);
    if (next.status === run.status) return;
    if (this.#query["status"]) this.#turned(event.run_id);
    // Only the server sums its usage and its descendants.
    else if (isTerminal(next.status) || (this.#hasRoots && next.parent_run_id)) this.#relist(relist_ms);
  }

  /** That a producer fell silent is not an event: the server tells connected readers. */
  #takeStalled({ run_id, stalled, last_seq }: Extract<StreamEvent, { type: "stream.stalled" }>): void {
    const run = this.#changes.get(run_id) ?? this.#byId.get(run_id);
    if (run !== undefined && last_seq >= run.last_seq) this.#changes.set(run_id, { ...run, stalled });
  }

  /** Reads the list again: if a run's silence ended before the server checked, no frame says so. */
  #checkStalled(): void {
    if (this.#recheck !== null) clearTimeout(this.#recheck);
    this.#recheck = setTimeout(() => this.runs.some(({ stalled }) => stalled) && this.#relist(0), stalled_ms);
  }

  /** An event of a run that is not on this page: only a new run, or one whose status changed, may belong here. */
  #takeUnknown(event: RunEvent, chars: number): void {
    if (this.#lists > 0 || this.#relisting !== null) {
      this.#early_chars += chars;
      if (this.#early_chars <= early_chars_max) this.#early.push(event);
    }
    const isNew = event.type === "run.created";
    if (!isNew && !this.#isLive && this.#query["sort"] === "updated") this.#moved.add(event.run_id);
    if (statusAfter(event.type) === null) return;
    const parent_run_id = isNew ? textOf(fields(event.payload)["parent_run_id"]) : null;
    if (parent_run_id !== null) this.#childOf(parent_run_id);
    if (isNew && this.#hasRoots && parent_run_id !== null) this.#relist(relist_ms);
    else if (isNew || this.#query["status"]) this.#turned(event.run_id);
    else if (this.#hasRoots) this.#relist(relist_ms);
  }

  /** A run may have entered or left the list: the list is read again or, if its rows stay, the run counts as moved. */
  #turned(run_id: string): void {
    if (this.#isLive) this.#relist(relist_ms);
    else this.#moved.add(run_id);
  }

  /** Notes a new run below one that is unfolded. */
  #childOf(parent_run_id: string): void {
    for (const [root_run_id, below] of this.below)
      if (root_run_id === parent_run_id || below.some((run) => run.run_id === parent_run_id))
        this.#grown.add(root_run_id);
  }

  /** Reads the descendants of the unfolded runs that have new ones. */
  #takeGrown(): void {
    const grown = [...this.#grown];
    this.#grown.clear();
    for (const run_id of grown) {
      const root = this.#byId.get(run_id);
      if (root !== undefined && this.below.has(run_id)) void this.unfold(root, true);
    }
  }

  #commit(): void {
    if (this.#turns > 0) this.turns += this.#turns;
    this.#turns = 0;
    if (this.#changes.size > 0) {
      const now = (run: Run) => this.#changes.get(run.run_id) ?? run;
      this.runs = this.runs.map(now);
      if (this.below.size > 0)
        this.below = new Map([...this.below].map(([root, below]) => [root, below.map(now)]));
      this.#index();
      if (!this.#isLive) this.#seeMoved();
      this.#changes.clear();
    }
    this.moved = this.#moved.size;
  }

  /** Notes changed runs whose rows are no longer in order. */
  #seeMoved(): void {
    const sort = String(this.#query["sort"] ?? "created");
    const sign = this.#query["order"] === "asc" ? 1 : -1;
    this.runs.forEach((run, at) => {
      if (!this.#changes.has(run.run_id)) return;
      const [before, own, after] = [this.runs[at - 1], run, this.runs[at + 1]].map((each) =>
        each === undefined ? null : placeOf(each, sort),
      );
      const isWrong = (one: number | null | undefined, other: number | null | undefined) =>
        typeof one === "number" && typeof other === "number" && (one - other) * sign > 0;
      if (isWrong(before, own) || isWrong(own, after)) this.#moved.add(run.run_id);
    });
  }

  #forgetMoved(): void {
    this.#moved.clear();
    this.moved = 0;
  }

  /** Schedules a request for the list; less often if the last one was slow. */
  #relist(delay_ms: number): void {
    if (this.#relisting !== null) return;
    this.#relisting = setTimeout(
      () => {
        this.#relisting = null;
        void this.#list(null).then(() => this.#takeGrown());
      },
      Math.max(delay_ms, delay_ms === 0 ? 0 : rest * this.#took_ms),
    );
  }

  /** Reads a page. `replaces`: its rows replace those that are shown. */
  async #list(cursor: string | null, replaces = false): Promise<void> {
    const { signal } = this.#abort;
    const listing = this.#listings;
    const begun_ms = performance.now();
    this.#lists += 1;
    try {
      const page = await runs.list({ ...this.#query, limit: page_runs, cursor }, signal);
      if (listing !== this.#listings) return;
      // The feed's changes in the meantime are newer than the page.
      const fresh = page.runs.map((run) =>
        newer(run, this.#changes.get(run.run_id) ?? this.#byId.get(run.run_id)),
      );
      this.#put(fresh, cursor !== null, replaces || this.isAsking, page.next_cursor ?? null);
      this.searched = page.searched ?? null;
      // The index is behind, and will catch up soon.
      if ((page.searched?.lag_ms ?? 0) > 0) this.#relist(lag_ms);
      this.#index();
      this.loaded = true;
      this.problem = null;
      this.isAsking = false;
    } catch (error) {
      if (listing === this.#listings) this.#refused(error);
    } finally {
      this.#lists -= 1;
      this.#took_ms = performance.now() - begun_ms;
    }
    this.#takeEarly();
  }

  #put(fresh: Run[], isMore: boolean, replaces: boolean, next_cursor: string | null): void {
    const known = new Set(this.runs.map((run) => run.run_id));
    // If the order changes between pages, a run may be on two of them.
    const added = fresh.filter((run) => !known.has(run.run_id));
    if (isMore) {
      this.runs = [...this.runs, ...added];
      this.next_cursor = next_cursor;
    } else if (replaces || !this.loaded) {
      this.runs = fresh;
      this.next_cursor = next_cursor;
    } else if (this.#isLive) {
      // A fresh first page before the older pages that were already opened.
      const last = fresh.at(-1);
      const isWhole = last === undefined || next_cursor === null;
      const older = isWhole ? [] : this.runs.filter((run) => isBelow(run, last) && this.#isWanted(run));
      this.runs = [...fresh, ...older];
      if (older.length === 0) this.next_cursor = next_cursor;
    } else {
      const listed = new Map(fresh.map((run) => [run.run_id, run]));
      this.runs = this.runs.map((run) => listed.get(run.run_id) ?? run);
      for (const run of added) this.#moved.add(run.run_id);
    }
  }

  /** Whether its status, as far as it is known, is the one of the query. */
  #isWanted(run: Run): boolean {
    const { status } = this.#query;
    return !status || (this.#changes.get(run.run_id) ?? run).status === status;
  }

  #refused(error: unknown): void {
    if (!(error instanceof RunreelError) || this.#abort.signal.aborted) return;
    this.problem = error.problem;
    this.isAsking = false;
  }

  #takeEarly(): void {
    const early = this.#early;
    // The next list has what there was no room for.
    if (this.#early_chars > early_chars_max) this.#relist(relist_ms);
    this.#early = [];
    this.#early_chars = 0;
    for (const event of early) {
      const run = this.#changes.get(event.run_id) ?? this.#byId.get(event.run_id);
      const next = run === undefined ? null : runAfter(run, event);
      if (next !== null) this.#changes.set(event.run_id, next);
    }
    this.#commit();
  }

  #index(): void {
    this.#byId = new Map(this.runs.map((run) => [run.run_id, run]));
    for (const below of this.below.values()) for (const run of below) this.#byId.set(run.run_id, run);
  }
}
