import {
  isEvent,
  RunreelError,
  type Client,
  type Connection,
  type EventStream,
  type RunStatus,
  type StreamEvent,
} from "@runreel/client";
import { fields, Interrupts, statusAfter, textOf, type Interrupt } from "@runreel/client/fold";
import { Conversation } from "./conversation.js";

/** A run's state, folded from its events. */
export interface RunState {
  /** Null while there is no run to follow. */
  run_id: string | null;
  /** Null until the first event has arrived. */
  status: RunStatus | null;
  title: string | null;
  agent: string | null;
  output: unknown;
  error: unknown;
  /** The seq of the newest event; 0 before the first. */
  last_seq: number;
  /** Everything that was stored when it was opened has been read. */
  isCaughtUp: boolean;
  /** The state of the connection. `failed` has an error that says what to do; `gap` reports deleted events. */
  connection: Connection;
}

const nothing: RunState = {
  run_id: null,
  status: null,
  title: null,
  agent: null,
  output: null,
  error: null,
  last_seq: 0,
  isCaughtUp: false,
  connection: { state: "idle", gap: null },
};
const none: readonly never[] = [];

/** How long a run keeps its stream after the last component left: StrictMode and routers remount at once. */
export const linger_ms = 500;

/**
 * One run shown by components: one stream for all of them, opened for the first one and closed when the last one has
 * left. Its methods return the same object until that changes.
 */
export class RunStore {
  readonly #client: Client;
  readonly #run_id: string;
  readonly #forget: () => void;
  readonly #listeners = new Set<() => void>();
  readonly #conversation = new Conversation();
  readonly #interrupts = new Interrupts();
  #stream: EventStream | null = null;
  #cursor: string | null = null;
  #leaving: ReturnType<typeof setTimeout> | null = null;
  #run: RunState;
  #open: readonly Interrupt[] = none;

  constructor(client: Client, run_id: string, forget: () => void) {
    this.#client = client;
    this.#run_id = run_id;
    this.#forget = forget;
    this.#run = { ...nothing, run_id };
    // A discarded render never subscribes.
    this.#leave();
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    // Two components may pass the same function, and each unsubscribes separately.
    const own = () => listener();
    this.#listeners.add(own);
    if (this.#leaving !== null) clearTimeout(this.#leaving);
    this.#leaving = null;
    if (this.#stream === null) this.#follow();
    return () => {
      this.#listeners.delete(own);
      if (this.#listeners.size === 0) this.#leave();
    };
  };

  readonly run = (): RunState => this.#run;
  readonly messages = (): Conversation["shown"] => this.#conversation.shown;
  readonly interrupts = (): readonly Interrupt[] => this.#open;

  /** Asks the server now: ends a wait, and starts again after a refusal. */
  readonly retry = (): void => {
    if (this.#run.connection.state === "failed") this.#follow();
    else this.#stream?.retryNow();
  };

  #leave(): void {
    if (this.#leaving !== null) clearTimeout(this.#leaving);
    this.#leaving = setTimeout(() => {
      this.#stream?.close();
      this.#stream = null;
      this.#forget();
    }, linger_ms);
  }

  #follow(): void {
    const stream = this.#client.stream(this.#run_id, { after: this.#cursor });
    this.#stream = stream;
    stream.status.subscribe(() => {
      if (this.#stream !== stream) return;
      this.#run = { ...this.#run, connection: stream.status.getSnapshot() };
      this.#notify();
    });
    this.#read(stream).catch((error: unknown) => {
      // A refusal is in the stream's status; anything else is a bug, and must surface.
      if (!(error instanceof RunreelError)) throw error;
    });
  }

  async #read(stream: EventStream): Promise<void> {
    for await (const batch of stream.batches()) {
      for (const { event, id } of batch) {
        this.#take(event);
        this.#cursor = id ?? this.#cursor;
      }
      const open = this.#run.isCaughtUp ? [...this.#interrupts.open.values()] : [];
      const isSame = open.length === this.#open.length && open.every((each, at) => each === this.#open[at]);
      if (!isSame) this.#open = open;
      this.#notify();
    }
  }

  #take(event: StreamEvent): void {
    this.#conversation.take(event);
    if (event.type === "stream.caught_up") this.#run = { ...this.#run, isCaughtUp: true };
    if (!isEvent(event)) return;
    this.#interrupts.take(event);
    const run = { ...this.#run, last_seq: event.seq, status: statusAfter(event.type) ?? this.#run.status };
    const { title, output, error } = fields(event.payload);
    if (event.type === "run.created")
      Object.assign(run, { title: textOf(title), agent: event.agent ?? null });
    if (event.type === "run.completed") run.output = output ?? null;
    if (event.type === "run.failed") run.error = error ?? event.payload;
    this.#run = run;
  }

  #notify(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/** The store that the hooks use while there is no run. */
export const noRun: Pick<RunStore, "subscribe" | "run" | "messages" | "interrupts" | "retry"> = {
  subscribe: () => () => undefined,
  run: () => nothing,
  messages: () => none,
  interrupts: () => none,
  retry: () => undefined,
};

const stores = new WeakMap<Client, Map<string, RunStore>>();

/** The store of a run, one for each client. */
export function storeOf(client: Client, run_id: string): RunStore {
  let runs = stores.get(client);
  if (runs === undefined) stores.set(client, (runs = new Map()));
  let store = runs.get(run_id);
  if (store === undefined) {
    const own = runs;
    const made: RunStore = new RunStore(client, run_id, () => {
      if (own.get(run_id) === made) own.delete(run_id);
    });
    own.set(run_id, (store = made));
  }
  return store;
}
