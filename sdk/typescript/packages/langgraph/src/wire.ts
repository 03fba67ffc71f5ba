import {
  WRITES_IDX_MAP,
  type Checkpoint,
  type CheckpointMetadata,
  type CheckpointTuple,
  type ChannelVersions,
  type PendingWrite,
  type SerializerProtocol,
} from "@langchain/langgraph-checkpoint";
import type { RunnableConfig } from "@langchain/core/runnables";
import { encoded } from "@runreel/client";
import { loaded, typed, type Typed } from "./values.js";

/** The server's bound for the metadata's JSON. */
const metadata_bytes_max = 65_536;

/** Where a config points: a thread, a namespace of it ("" is the root graph), and a checkpoint or the newest. */
export interface Place {
  thread_id: string;
  ns: string;
  checkpoint_id: string | undefined;
}

/** A checkpoint as the server returns it. */
export interface Row {
  thread_id: string;
  ns: string;
  checkpoint_id: string;
  parent_id: string | null;
  checkpoint: Typed;
  metadata: Record<string, unknown>;
  versions: ChannelVersions;
  blobs: Record<string, Typed & { version: string | number }>;
  writes: (Typed & { task_id: string; channel: string })[];
}

export interface Page {
  checkpoints: Row[];
  next_cursor: string | null;
}

/** Throws an Error for a thread id that the server would refuse, before anything is sent. */
export function threadPath(thread_id: string): string {
  if (/^[A-Za-z0-9._:@+-]{1,255}$/.test(thread_id)) {
    const isDots = /^\.+$/.test(thread_id);
    return `/api/threads/${isDots ? thread_id.replaceAll(".", "%2E") : encodeURIComponent(thread_id)}`;
  }
  const shown = JSON.stringify(thread_id.slice(0, 300));
  throw new Error(`thread_id must be 1 to 255 characters of A-Z a-z 0-9 . _ : @ + -, not ${shown}`);
}

export function checkpointPath({ thread_id, checkpoint_id }: Place): string {
  return `${threadPath(thread_id)}/checkpoints/${encodeURIComponent(checkpoint_id ?? "latest")}`;
}

export function configOf({ thread_id, ns, checkpoint_id }: Place): RunnableConfig {
  return { configurable: { thread_id, checkpoint_ns: ns, checkpoint_id } };
}

/** The body that stores a checkpoint: the state without its channels' values, and the new values. */
export async function putBody(
  serde: SerializerProtocol,
  place: Place,
  run_id: unknown,
  checkpoint: Checkpoint,
  metadata: CheckpointMetadata,
  newVersions: ChannelVersions,
): Promise<unknown> {
  const { id: _, channel_values, channel_versions: versions, ...state } = checkpoint;
  const blobs = await Promise.all(
    Object.entries(channel_values)
      .filter(([channel]) => newVersions[channel] !== undefined)
      .map(async ([channel, value]) => [
        channel,
        { version: newVersions[channel], ...(await typed(serde, value)) },
      ]),
  );
  return {
    ns: place.ns,
    parent_id: place.checkpoint_id,
    ...(typeof run_id === "string" && { run_id }),
    checkpoint: await typed(serde, { ...state, channel_values: {} }),
    metadata: kept(metadata),
    versions,
    blobs: Object.fromEntries(blobs) as unknown,
  };
}

export async function writesBody(
  serde: SerializerProtocol,
  ns: string,
  writes: PendingWrite[],
  task_id: string,
  task_path: string,
): Promise<unknown> {
  const idxOf = (channel: string) =>
    Object.hasOwn(WRITES_IDX_MAP, channel) ? WRITES_IDX_MAP[channel] : undefined;
  return {
    ns,
    task_id,
    task_path,
    // A task's status (an error, an interrupt) may change; its writes may not.
    upsert: writes.every(([channel]) => idxOf(channel) !== undefined),
    writes: await Promise.all(
      writes.map(async ([channel, value], at) => ({
        idx: idxOf(channel) ?? at,
        channel,
        ...(await typed(serde, value)),
      })),
    ),
  };
}

/** LangGraph's form of a checkpoint. */
export async function readTuple(serde: SerializerProtocol, row: Row): Promise<CheckpointTuple> {
  const { thread_id, ns, checkpoint_id, parent_id, versions } = row;
  const state = (await loaded(serde, row.checkpoint)) as Partial<Checkpoint>;
  const blobs = Object.entries(row.blobs).filter(([, { t }]) => t !== "empty");
  const values = await Promise.all(
    blobs.map(async ([channel, blob]) => [channel, await loaded(serde, blob)] as const),
  );
  const checkpoint = {
    ...state,
    id: checkpoint_id,
    channel_values: { ...state.channel_values, ...Object.fromEntries(values) },
    channel_versions: versions,
  } as Checkpoint;
  return {
    config: configOf({ thread_id, ns, checkpoint_id }),
    checkpoint,
    metadata: row.metadata as CheckpointMetadata,
    ...(parent_id !== null && { parentConfig: configOf({ thread_id, ns, checkpoint_id: parent_id }) }),
    pendingWrites: await Promise.all(
      row.writes.map(async (write) => [write.task_id, write.channel, await loaded(serde, write)] as never),
    ),
  };
}

/**
 * The metadata as JSON, without NULs and with U+FFFD for lone surrogates, since the server stores neither. Over the
 * server's bound, its longest members are left out, and it is marked.
 */
function kept(metadata: CheckpointMetadata): unknown {
  const members = asJson(metadata);
  const bytesOf = (part: unknown) => new TextEncoder().encode(JSON.stringify(part)).length;
  let total = bytesOf(members);
  if (total <= metadata_bytes_max) return members;
  const mark = { $truncated: true };
  total += bytesOf(mark);
  const sizes = Object.entries(members).map(
    ([name, value]) => [name, bytesOf({ [name]: value }) - 1] as const,
  );
  const dropped = new Set<string>();
  for (const [name, size] of sizes.sort(([, a], [, b]) => b - a)) {
    if (total <= metadata_bytes_max) break;
    total -= size;
    dropped.add(name);
  }
  return { ...Object.fromEntries(Object.entries(members).filter(([name]) => !dropped.has(name))), ...mark };
}

function asJson(metadata: CheckpointMetadata): object {
  const clean = (text: string) => text.replaceAll("\0", "").replace(/\p{Surrogate}/gu, "\uFFFD");
  const whole = (_name: string, value: unknown): unknown => {
    if (typeof value === "string") return clean(value);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [clean(name), member]));
  };
  try {
    return JSON.parse(JSON.stringify(metadata, whole)) as object;
  } catch {
    // A value without a JSON form: a bigint, a cycle.
    return JSON.parse(encoded(metadata)) as object;
  }
}

/** Containment as defined by PostgreSQL's `jsonb @>`, by which the server filters. */
export function contains(whole: unknown, part: unknown): boolean {
  if (Array.isArray(part)) {
    return Array.isArray(whole) && part.every((wanted) => whole.some((item) => contains(item, wanted)));
  }
  if (typeof part !== "object" || part === null) return whole === part;
  return (
    typeof whole === "object" &&
    whole !== null &&
    Object.entries(part).every(([name, wanted]) => contains((whole as Record<string, unknown>)[name], wanted))
  );
}
