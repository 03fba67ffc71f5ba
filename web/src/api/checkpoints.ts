import { withQuery, type components } from "@runreel/client";
import { transport } from "./client";
import { fromMsgpack } from "./msgpack";

export type Checkpoint = components["schemas"]["Checkpoint"];

/** Few, because each includes all its values. */
const page_checkpoints = 5;

/** The checkpoints of a thread, newest first; with `run_id` those of the run, whose thread need not exist. */
export async function checkpointsOf(
  thread_id: string,
  of: { run_id?: string; cursor?: string | null },
  signal?: AbortSignal,
): Promise<{ checkpoints: Checkpoint[]; next_cursor: string | null }> {
  const isOfRun = of.run_id !== undefined;
  const path = isOfRun ? "/api/checkpoints" : `/api/threads/${encodeURIComponent(thread_id)}/checkpoints`;
  const page = await transport.json<components["schemas"]["CheckpointList"]>(
    withQuery(path, { limit: page_checkpoints, ...of }),
    { signal },
  );
  return { checkpoints: page.checkpoints, next_cursor: page.next_cursor ?? null };
}

/** A stored value as plain data, or its type and size as text if it cannot be decoded. */
export function valueOf({ t, b }: { t: string; b?: string }): unknown {
  const bytes = Uint8Array.from(atob(b ?? ""), (char) => char.charCodeAt(0));
  try {
    if (t === "json") return JSON.parse(new TextDecoder().decode(bytes)) as unknown;
    if (t === "msgpack") return fromMsgpack(bytes);
  } catch {
    // Shown below by its type and size.
  }
  return t === "empty" || t === "null" ? null : `${t}, ${bytes.length} bytes`;
}

/** The state of a checkpoint, by channel. */
export function stateOf({ blobs, checkpoint }: Checkpoint): Record<string, unknown> {
  const inside = valueOf(checkpoint as { t: string; b?: string });
  const kept = (inside as { channel_values?: unknown } | null)?.channel_values;
  const state: Record<string, unknown> = typeof kept === "object" && kept !== null ? { ...kept } : {};
  for (const [channel, blob] of Object.entries(blobs)) state[channel] = valueOf(blob);
  return state;
}
