import type { Connection, Order, Received } from "@runreel/client";

export interface FollowerOptions {
  path: (cursor: string | null) => string;
  order: Order;
  /** Awaited before the first connection; its refusal counts as one of the stream. */
  begin?: () => Promise<void>;
  take: (received: Received) => void;
  /** Called at most once per drawn frame, however many events arrived in between. */
  commit: () => void;
  changed: (connection: Connection) => void;
}

export interface Following {
  stream: { retryNow: () => void };
  stop: () => void;
}

const again_ms = 1_000;

/** Reads a stream until it is stopped. The reader is loaded in the background: no page needs it to be drawn. */
export function follow(options: FollowerOptions): Following {
  let reading: Following | null = null;
  let isStopped = false;
  // Begins at once; the reader then awaits the same promise, and begins again when it has failed.
  let first = options.begin?.();
  first?.catch(() => undefined);
  const begin = async () => {
    const asked = first ?? options.begin?.();
    first = undefined;
    await asked;
  };
  const load = async () => {
    try {
      const { read } = await import("./reader");
      if (!isStopped) reading = read({ ...options, begin });
    } catch {
      if (!isStopped) setTimeout(load, again_ms);
    }
  };
  void load();
  return {
    stream: { retryNow: () => reading?.stream.retryNow() },
    stop: () => {
      isStopped = true;
      reading?.stop();
    },
  };
}
