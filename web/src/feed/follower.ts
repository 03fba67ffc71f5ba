import {
  EventStream,
  RunreelError,
  type Connection,
  type Order,
  type Received,
  type StreamOptions,
} from "@runreel/client";
import { transport } from "../api/client";
import { followVisibility } from "./visibility";

export interface FollowerOptions {
  path: (cursor: string | null) => string;
  order: Order;
  take: (received: Received) => void;
  /** Called at most once per drawn frame, however many events came in between. */
  commit: () => void;
  changed: (connection: Connection) => void;
}

/** A slice of work between two looks at the screen. */
const slice_ms = 12;

/** A stream bound to this tab: its visibility, its token, its frames. Returns the stream and the undo. */
export function follow(options: FollowerOptions): { stream: EventStream; stop: () => void } {
  let isScheduled = false;
  let isStopped = false;
  const commit = () => {
    isScheduled = false;
    if (!isStopped) options.commit();
  };
  const schedule = () => {
    if (isScheduled) return;
    isScheduled = true;
    // A hidden tab draws no frames, yet its title and counts should stay true.
    if (document.visibilityState === "hidden") setTimeout(commit, 250);
    else requestAnimationFrame(commit);
  };
  const { order } = options;
  const open: StreamOptions["open"] = (cursor, init) => transport.open(options.path(cursor), init);
  const stream = new EventStream({ open, order });
  const unsubscribe = stream.status.subscribe(() => options.changed(stream.status.getSnapshot()));
  const read = async () => {
    let since = performance.now();
    for await (const batch of stream.batches()) {
      for (const received of batch) options.take(received);
      schedule();
      if (performance.now() - since < slice_ms) continue;
      await breath();
      since = performance.now();
    }
  };
  read().catch((error: unknown) => {
    // A refusal is in the stream's status.
    if (!(error instanceof RunreelError)) throw error;
  });
  const unfollow = followVisibility(stream);
  const stop = () => {
    isStopped = true;
    unfollow();
    unsubscribe();
    stream.close();
  };
  return { stream, stop };
}

/** Lets the browser draw: a macrotask, without the 4 ms that nested timers are held back. */
function breath(): Promise<void> {
  return new Promise((resolve) => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => {
      channel.port1.close();
      resolve();
    };
    channel.port2.postMessage(null);
  });
}
