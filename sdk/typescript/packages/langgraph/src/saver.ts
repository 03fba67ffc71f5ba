import {
  BaseCheckpointSaver,
  getCheckpointId,
  maxChannelVersion,
  TASKS,
  type ChannelVersions,
  type Checkpoint,
  type CheckpointListOptions,
  type CheckpointMetadata,
  type CheckpointTuple,
  type PendingWrite,
  type SerializerProtocol,
} from "@langchain/langgraph-checkpoint";
import type { RunnableConfig } from "@langchain/core/runnables";
import { Client, type ClientOptions } from "@runreel/client";
import { Requests } from "./requests.js";
import { loaded } from "./values.js";
import * as wire from "./wire.js";

/** Where the server is (as for a `Client`), and how long it may take. */
export interface RunreelSaverOptions extends Omit<ClientOptions, "onError"> {
  /** How values become bytes; LangGraph's own by default. The server decodes neither values nor state. */
  serde?: SerializerProtocol;
  /** Milliseconds for one request, 30 000 by default. */
  timeout_ms?: number;
  /** How often a request is repeated when the server is unreachable or busy, 5 by default. */
  retries?: number;
}

/** Checkpoints of a list in one request. */
const page_max = 100;

/**
 * A checkpointer for `graph.compile({ checkpointer })` that stores every thread in Runreel: any process that has a
 * credential of the same principal can continue it. One saver serves any number of graphs and threads.
 *
 * The server sees ids, the names of channels and the metadata, which must be JSON. A checkpoint belongs to the run that
 * `metadata.run_id` of the config names, if it does. All the values of a checkpoint may have 32 MiB together, and one
 * request 8 MiB.
 *
 * Methods reject with a `RunreelError` when the server refuses (`too_large`, `unauthorized` …) and when it does not answer
 * (`unreachable`) after `retries`; with an `Error` for a thread id that is not 1 to 255 characters of
 * `A-Z a-z 0-9 . _ : @ + -`.
 */
export class RunreelSaver extends BaseCheckpointSaver {
  readonly #requests: Requests;

  constructor({ serde, timeout_ms = 30_000, retries = 5, ...options }: RunreelSaverOptions = {}) {
    super(serde);
    this.#requests = new Requests(new Client(options).transport, { timeout_ms, retries });
  }

  /** The checkpoint that the config names, else the newest; undefined when there is none. */
  async getTuple(config: RunnableConfig): Promise<CheckpointTuple | undefined> {
    const place = placeOf(config);
    if (place === undefined) return undefined;
    const row = await this.#row(place);
    return row && this.#read(row);
  }

  /** Newest first, a page at a time; without a thread in the config, of all threads of the principal. */
  async *list(config: RunnableConfig, options: CheckpointListOptions = {}): AsyncGenerator<CheckpointTuple> {
    let left = options.limit ?? Infinity;
    if (left <= 0) return;
    const { filter } = options;
    const before = options.before && getCheckpointId(options.before);
    const place = placeOf(config);
    if (place?.checkpoint_id) {
      const row = await this.#row(place);
      const isBefore = row && (!before || row.checkpoint_id < before);
      if (isBefore && wire.contains(row.metadata, filter ?? {})) yield await this.#read(row);
      return;
    }
    const path = place ? `${wire.threadPath(place.thread_id)}/checkpoints` : "/api/checkpoints";
    const query = new URLSearchParams();
    const ns: unknown = config.configurable?.["checkpoint_ns"];
    // Empty means the root graph's namespace, absent means all namespaces.
    if (typeof ns === "string") query.set("ns", ns);
    if (before) query.set("before", before);
    if (filter) query.set("filter", JSON.stringify(filter));
    for (let cursor: string | null | undefined; cursor !== null;) {
      query.set("limit", String(Math.min(left, page_max)));
      if (cursor !== undefined) query.set("cursor", cursor);
      const page: wire.Page | undefined = await this.#requests.find<wire.Page>(`${path}?${query.toString()}`);
      for (const row of page?.checkpoints ?? []) {
        yield await this.#read(row);
        if (--left === 0) return;
      }
      cursor = page?.next_cursor ?? null;
    }
  }

  /** Stores a checkpoint: its state, and the values that `newVersions` names. Repeating it changes nothing. */
  async put(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    newVersions: ChannelVersions,
  ): Promise<RunnableConfig> {
    const parent = needed(placeOf(config), "thread_id");
    const made = { ...parent, checkpoint_id: checkpoint.id };
    const run_id = config.metadata?.["run_id"];
    const body = await wire.putBody(this.serde, parent, run_id, checkpoint, metadata, newVersions);
    await this.#requests.send(wire.checkpointPath(made), { method: "PUT", body });
    return wire.configOf(made);
  }

  /** Stores what a task has written since the checkpoint that the config names. */
  async putWrites(
    config: RunnableConfig,
    writes: PendingWrite[],
    taskId: string,
    taskPath = "",
  ): Promise<void> {
    const place = needed(placeOf(config), "thread_id");
    needed(place.checkpoint_id, "checkpoint_id");
    if (writes.length === 0) return;
    const body = await wire.writesBody(this.serde, place.ns, writes, taskId, taskPath);
    await this.#requests.send(`${wire.checkpointPath(place)}/writes`, { method: "PUT", body });
  }

  /** Removes a thread with all its checkpoints, for which the credential needs the scope `admin`. Its runs stay. */
  async deleteThread(threadId: string): Promise<void> {
    await this.#requests.find(wire.threadPath(threadId), { method: "DELETE" });
  }

  /** A counter whose fraction is 32 random bits, so that two branches of a thread do not share a version. */
  override getNextVersion(current: number | undefined): number {
    const [bits = 0] = crypto.getRandomValues(new Uint32Array(1));
    return Math.floor(super.getNextVersion(current)) + bits / 2 ** 32;
  }

  #row(place: wire.Place): Promise<wire.Row | undefined> {
    return this.#requests.find<wire.Row>(wire.checkpointPath(place), { query: { ns: place.ns } });
  }

  async #read(row: wire.Row): Promise<CheckpointTuple> {
    const tuple = await wire.readTuple(this.serde, row);
    if (tuple.checkpoint.v >= 4 || row.parent_id === null) return tuple;
    // Formats before 4 store what a step sends to the next one with the step's own checkpoint.
    const parent = await this.#row({ ...row, checkpoint_id: row.parent_id });
    const sends = (parent?.writes ?? []).filter(({ channel }) => channel === TASKS);
    const { channel_values, channel_versions } = tuple.checkpoint;
    channel_values[TASKS] = await Promise.all(sends.map((write) => loaded(this.serde, write)));
    const versions = Object.values(channel_versions);
    channel_versions[TASKS] =
      versions.length > 0 ? (maxChannelVersion(...versions) as number) : this.getNextVersion(undefined);
    return tuple;
  }
}

/** Undefined if the config names no thread. */
function placeOf(config: RunnableConfig): wire.Place | undefined {
  const { thread_id, checkpoint_ns } = config.configurable ?? {};
  if (thread_id === undefined || thread_id === null) return undefined;
  return {
    thread_id: String(thread_id),
    ns: (checkpoint_ns as string | undefined) ?? "",
    checkpoint_id: getCheckpointId(config) || undefined,
  };
}

function needed<T>(value: T | undefined, name: string): T {
  if (value !== undefined) return value;
  throw new Error(
    `a checkpoint needs ${name} in the config: graph.invoke(input, { configurable: { ${name}: "…" } })`,
  );
}
