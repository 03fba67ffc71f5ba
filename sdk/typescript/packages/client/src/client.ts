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
  /** Hears of trouble with emitting, each kind once. Default: a line on the console. */
  onError?: (error: Error) => void;
}

/** Where a stream begins, and what it shows. */
export interface Following {
  /** The cursor to go on after: a seq, or a stream's `lastEventId`. Without it (and `tail`) it starts at the beginning. */
  after?: string | number | null | undefined;
  /** Without a cursor: the last so many events, 0 to 1000, and then what comes. */
  tail?: number | null | undefined;
  /** Only these types; families such as `tool.*` too. */
  types?: readonly string[] | undefined;
  /** `false` leaves out deltas and snapshots. */
  tokens?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

/** A new run to tell of. Members of any kind may be `input` and `metadata`; they are made plain. */
export type NewRun = Omit<CreateRun, "start" | "at" | "parent_run_id"> & {
  /** The run that this one works for. One of this client's is created first. */
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
  /** Requests to the server: what all of this is made of. */
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

  /** Durable events of all runs of this client that were given up. */
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

  /** Follows every run of a thread, also those to come. It never ends by itself. */
  streamThread(thread_id: string, options: Following = {}): EventStream {
    return this.#feed(`/api/stream/threads/${segment(thread_id)}`, options);
  }

  /** Follows everything the credential may read; `role` narrows it. It never ends by itself. */
  streamAll({ role, ...options }: Following & { role?: string | null } = {}): EventStream {
    return this.#feed("/api/stream/runs", options, { role });
  }

  /**
   * Tells of a new run: events go into a queue and are sent in batches. It never throws into its host and never makes it
   * wait; what could not be sent is counted in `dropped`. With `lease_ms` it renews the run's lease until the run has ended:
   * one whose program was killed reads `stalled`.
   */
  run({ parent, ...members }: NewRun = {}): RunEmitter {
    const run_id = members.run_id ?? newRunId();
    const parent_run_id = typeof parent === "object" ? parent?.run_id : parent;
    // A line of at most so many characters; titles are made of what people write.
    const title = members.title?.replace(/\p{Cc}/gu, " ").slice(0, 512);
    const creation = encoded({ ...members, title, run_id, parent_run_id, at: new Date().toISOString() });
    const before = typeof parent === "object" && parent !== null ? this.#outboxes.get(parent) : undefined;
    const outbox = new Outbox(this.transport, run_id, this.#room, creation, before ?? null);
    return this.#emitter(outbox, members.lease_ms);
  }

  /** Goes on telling of a run that exists. */
  attach(run_id: string): RunEmitter {
    return this.#emitter(new Outbox(this.transport, run_id, this.#room, null, null));
  }

  #emitter(outbox: Outbox, lease_ms?: number | null): RunEmitter {
    // One that fails is made up for by the next, and by every event.
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
