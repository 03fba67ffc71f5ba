import { authorization } from "../api/token";
import type { FeedMessage } from "./frames";
import type { Order } from "./order";
import { Source, type Connection } from "./source";
import { followVisibility } from "./visibility";

export interface FollowerOptions {
  url: (cursor: string | null) => string;
  order: Order;
  take: (message: FeedMessage) => void;
  /** Called at most once per drawn frame, however many messages came in between. */
  commit: () => void;
  changed: (connection: Connection) => void;
}

/** A stream bound to this tab: its visibility, its token, its frames. Returns the source and the undo. */
export function follow(options: FollowerOptions): { source: Source; stop: () => void } {
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
  const source = new Source({
    url: options.url,
    order: options.order,
    headers: authorization,
    deliver(messages) {
      for (const message of messages) options.take(message);
      schedule();
    },
    changed(connection) {
      if (!isStopped) options.changed(connection);
    },
  });
  const unfollow = followVisibility(source);
  source.start();
  const stop = () => {
    isStopped = true;
    unfollow();
    source.stop();
  };
  return { source, stop };
}
