import { EventStream, RunreelError, type StreamOptions } from "@runreel/client";
import type { FollowerOptions, Following } from "./follower";
import { shared } from "./shared";

/** How long events are processed before the browser may draw. */
const slice_ms = 12;
/** The latest commit if no frame is drawn. */
const undrawn_ms = 250;

/** Reads a stream on the shared hub, and commits its events once per drawn frame. */
export function read(options: FollowerOptions): Following {
  let frame = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isStopped = false;
  const commit = () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    frame = 0;
    if (!isStopped) options.commit();
  };
  const schedule = () => {
    if (frame > 0) return;
    frame = requestAnimationFrame(commit);
    // A tab that is or becomes hidden draws no frames, yet its title and counts should stay current.
    timer = setTimeout(commit, undrawn_ms);
  };
  const { order } = options;
  let { begin } = options;
  const open: StreamOptions["open"] = async (_, init) => {
    try {
      await begin?.();
      begin = undefined;
    } catch (error) {
      if (error instanceof RunreelError && error.problem.status > 0) return refusalOf(error);
      throw error;
    }
    const { cursor } = order;
    return shared.open(options.path(cursor), cursor, init.signal as AbortSignal);
  };
  const stream = new EventStream({ open, order });
  const unsubscribe = stream.status.subscribe(() => options.changed(stream.status.getSnapshot()));
  const readAll = async () => {
    let since = performance.now();
    for await (const batch of stream.batches()) {
      for (const received of batch) options.take(received);
      schedule();
      if (performance.now() - since < slice_ms) continue;
      await breath();
      since = performance.now();
    }
  };
  readAll().catch((error: unknown) => {
    // A refusal is in the stream's status.
    if (!(error instanceof RunreelError)) throw error;
  });
  const retryNow = () => stream.retryNow();
  const unhear = shared.onAgain(retryNow);
  window.addEventListener("online", retryNow);
  const stop = () => {
    isStopped = true;
    unhear();
    window.removeEventListener("online", retryNow);
    unsubscribe();
    stream.close();
  };
  return { stream, stop };
}

const refusalOf = ({ problem }: RunreelError): Response =>
  new Response(JSON.stringify(problem), {
    status: problem.status,
    headers: { "content-type": "application/problem+json" },
  });

/** Lets the browser draw: a macrotask, without the 4 ms delay of nested timers. */
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
