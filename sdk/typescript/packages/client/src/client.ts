import { newRunId, RunEmitter, type Scope } from "./emitter.js";
import { FeedOrder, RunOrder, type Order } from "./order.js";
import { Outbox, Room } from "./outbox.js";
import { encoded } from "./payload.js";
import { Runs, Threads } from "./runs.js";
import { EventStream } from "./stream.js";
import {
  segment,
  Transport,
  withQuery,
  type CallOptions,
  type Query,
  type TransportOptions,
} from "./transport.js";
import type { CreateRun } from "./types.js";

export interface ClientOptions extends Partial<TransportOptions> {
  /** Called for errors of emitting, once for each kind. Default: a line on the console. */
  onError?: (error: Error) => void;
}

/** Where a stream begins, and what it shows. */
export interface Following {
  /** The cursor to continue after: a seq, or a stream's `lastEventId`. Without it (and `tail`), from the beginning. */
  after?: string | number | null | undefined;
  /** Without a cursor: starts with this many of the last events, 0 to 1000. */
  tail?: number | null | undefined;
  /** Only these types, or families such as `tool.*`. */
  types?: readonly string[] | undefined;
  /** `false` leaves out deltas and snapshots. */
  tokens?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

/** A new run to record. `input` and `metadata` may contain any values, which are converted to JSON. */
export type NewRun = Omit<CreateRun, "start" | "at" | "parent_run_id"> & {
  /** The parent run. One of this client's is created first. */
  parent?: Scope | string | null;
};

interface Environment {
  location?: { origin: string };
  process?: { env?: Record<string, string | undefined> };
}

const environment = globalThis as Environment;
const variable = (name: string) => environment.process?.env?.[name];

/** The page's own origin; elsewhere `RUNREEL_URL`, or this machine's server. */
function defaultUrl(): string {
  if (environment.location?.origin.startsWith("http")) return "";
  return variable("RUNREEL_URL") ?? "http://127.0.0.1:7717";
}

/**
 * A Runreel server and a credential for it.
 *
 * ```ts
 * const client = new Client({ url: "https://runreel.example", token: "rr_…" });
 * for await (const event of client.stream(run_id)) console.log(event.type);
 * ```
 *
 * Outside of pages, `url` and `token` default to the variables `RUNREEL_URL` and `RUNREEL_TOKEN`.
 */
export class Client {
  /** Requests to the server, on which everything here is built. */
  readonly transport: Transport;
  readonly runs: Runs;
  readonly threads: Threads;
  readonly #room: Room;
  readonly #outboxes = new WeakMap<Scope, Outbox>();

  constructor(options: ClientOptions = {}) {
    const url = (options.url ?? defaultUrl()).replace(/\/+$/, "");
    const token = options.token ?? variable("RUNREEL_TOKEN");
    this.transport = new Transport({ url, token, fetch: options.fetch });
    this.runs = new Runs(this.transport);
    this.threads = new Threads(this.transport);
    this.#room = new Room(options.onError ?? ((error) => console.warn(`runreel: ${error.message}`)));
  }

  /** How many durable events of all runs of this client were dropped. */
  get dropped(): number {
    return this.#room.dropped;
  }

  /** Any route of the contract: its decoded JSON, or a `RunreelError`. */
  request<T>(path: string, options?: CallOptions): Promise<T> {
    return this.transport.json(path, options);
  }

  /**
   * Follows a run to its end; with `tree` also its descendants, to the end of the last one. Every durable event once, in
   * order, over as many connections as it takes.
   */
  stream(run_id: string, options: Following & { tree?: boolean } = {}): EventStream {
    const path = `/api/stream/runs/${segment(run_id)}`;
    const { after, tail, types, tree } = options;
    if (tree) return this.#feed(path, { ...options }, { tree });
    const isSparse = types !== undefined || (tail !== undefined && tail !== null);
    return this.#follow(path, options, {}, new RunOrder(cursorOf(after), isSparse));
  }

  /** Follows all runs of a thread, also future ones. It does not end until it is closed. */
  streamThread(thread_id: string, options: Following = {}): EventStream {
    return this.#feed(`/api/stream/threads/${segment(thread_id)}`, options);
  }

  /** Follows everything the credential may read; `role` narrows it. It does not end until it is closed. */
  streamAll({ role, ...options }: Following & { role?: string | null } = {}): EventStream {
    return this.#feed("/api/stream/runs", options, { role });
  }

  /**
   * Records a new run: events are queued and sent in batches. Emitting never throws and never waits; events that could
   * not be sent are counted in `dropped`. With `lease_ms` the run's lease is renewed until the run has ended: one whose
   * program was killed is reported as `stalled`.
   */
  run({ parent, ...members }: NewRun = {}): RunEmitter {
    const run_id = members.run_id ?? newRunId();
    const parent_run_id = typeof parent === "object" ? parent?.run_id : parent;
    // The contract wants one line of at most 512 characters; titles often contain what people write.
    const title = members.title?.replace(/\p{Cc}/gu, " ").slice(0, 512);
    const creation = encoded({ ...members, title, run_id, parent_run_id, at: new Date().toISOString() });
    const before = typeof parent === "object" && parent !== null ? this.#outboxes.get(parent) : undefined;
    const outbox = new Outbox(this.transport, run_id, this.#room, creation, before ?? null);
    return this.#emitter(outbox, members.lease_ms);
  }

  /** Continues to record an existing run. */
  attach(run_id: string): RunEmitter {
    return this.#emitter(new Outbox(this.transport, run_id, this.#room, null, null));
  }

  #emitter(outbox: Outbox, lease_ms?: number | null): RunEmitter {
    // A failed heartbeat is made up for by the next one, and by every event.
    const beat = () => void this.runs.heartbeat(outbox.run_id).catch(() => undefined);
    const emitter = new RunEmitter(outbox, beat, lease_ms);
    this.#outboxes.set(emitter, outbox);
    return emitter;
  }

  #feed(path: string, options: Following, query: Query = {}): EventStream {
    return this.#follow(path, options, query, new FeedOrder(cursorOf(options.after)));
  }

  #follow(path: string, options: Following, more: Query, order: Order): EventStream {
    const { tail, types, tokens, signal } = options;
    const query = { ...more, types: types?.join(","), tokens: tokens === false ? false : null };
    return new EventStream({
      order,
      signal,
      open: (cursor, init) =>
        this.transport.open(withQuery(path, { ...query, tail: cursor === null ? tail : null }), init),
    });
  }
}

const cursorOf = (after: Following["after"]) =>
  after === undefined || after === null ? null : String(after);
