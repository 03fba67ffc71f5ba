import { Threads, type components, type Query, type RunPage } from "@runreel/client";
import type { Checkpoint } from "./checkpoints";
import { transport } from "./client";
import { ask, literal } from "./sql";

type Schemas = components["schemas"];

export type Thread = Schemas["Thread"];

/** A checkpoint without its values. */
export interface CheckpointRow {
  checkpoint_id: string;
  ns: string;
  parent_id: string | null;
  run_id: string | null;
  metadata: Record<string, unknown>;
  bytes: number;
  created_at: string;
}

export const page_threads = 50;
/** Maximum number of checkpoints listed, the newest ones. */
export const listed_checkpoints_max = 500;

const pathOf = (thread_id: string) => `/api/threads/${encodeURIComponent(thread_id)}`;
const put = <T>(path: string, body: unknown) => transport.json<T>(path, { method: "PUT", body });

const pages = new Threads(transport);

export const threads = {
  messages: pages.messages.bind(pages),

  list: (filter: Query, signal: AbortSignal) =>
    transport.json<Schemas["ThreadList"]>("/api/threads", {
      query: { limit: page_threads, ...filter },
      signal,
    }),

  get: (thread_id: string, signal?: AbortSignal) => transport.json<Thread>(pathOf(thread_id), { signal }),

  runs: (thread_id: string, cursor: string | null, signal: AbortSignal) =>
    transport.json<RunPage>(`${pathOf(thread_id)}/runs`, { query: { limit: 100, cursor }, signal }),

  /** The number of runs of each thread. */
  async counts(ids: readonly string[], signal: AbortSignal): Promise<Map<string, number>> {
    if (ids.length === 0) return new Map();
    const query = `select thread_id, runs from threads where thread_id in (${ids.map(literal).join(", ")})`;
    const { rows } = await ask(query, ids.length, signal);
    return new Map(rows.map(([id, runs]) => [String(id), Number(runs)]));
  },

  /** The checkpoints of a thread, newest first, without their values, which may be many megabytes. */
  async checkpoints(thread_id: string, signal: AbortSignal): Promise<CheckpointRow[]> {
    const query = `select checkpoint_id, ns, parent_id, run_id, metadata, bytes, created_at from checkpoints
where thread_id = ${literal(thread_id)} order by checkpoint_id desc limit ${listed_checkpoints_max}`;
    const { rows } = await ask(query, listed_checkpoints_max, signal);
    return rows.map(([checkpoint_id, ns, parent_id, run_id, metadata, bytes, created_at]) => ({
      checkpoint_id: String(checkpoint_id),
      ns: String(ns),
      parent_id: parent_id as string | null,
      run_id: run_id as string | null,
      metadata: (metadata ?? {}) as Record<string, unknown>,
      bytes: Number(bytes),
      created_at: String(created_at),
    }));
  },

  checkpoint: (thread_id: string, checkpoint_id: string, ns: string, signal: AbortSignal) =>
    transport.json<Checkpoint>(`${pathOf(thread_id)}/checkpoints/${encodeURIComponent(checkpoint_id)}`, {
      query: { ns },
      signal,
    }),

  /** Copies the whole thread to another id. */
  copy: (thread_id: string, to: string) =>
    transport.json<Thread>(`${pathOf(thread_id)}/copy`, { method: "POST", body: { to } }),

  /** Creates a thread that continues from one checkpoint, without those before and after it. */
  async fork({ thread_id, metadata }: Thread, from: Checkpoint, to: string): Promise<void> {
    const { checkpoint_id, ns, run_id, checkpoint, versions, blobs } = from;
    await put(pathOf(to), { metadata: { ...metadata, forked_from: { thread_id, checkpoint_id } } });
    const path = `${pathOf(to)}/checkpoints/${encodeURIComponent(checkpoint_id)}`;
    await put(path, { ns, run_id, checkpoint, metadata: from.metadata, versions, blobs });
  },

  /** Whether a thread with this id exists. */
  async has(thread_id: string, signal: AbortSignal): Promise<boolean> {
    const { threads: found } = await this.list({ q: thread_id, limit: 1_000 }, signal);
    return found.some((each) => each.thread_id === thread_id);
  },

  delete: (thread_id: string) => transport.call(pathOf(thread_id), { method: "DELETE" }),
};
