import { createParser } from "eventsource-parser";
import { problemOf } from "../api/client";
import type { Problem } from "../api/types";
import { backoff, backoffLimits, retryAfterMs } from "./backoff";
import { decode, type FeedMessage, type Frame } from "./frames";
import type { Order } from "./order";

/** What the connection is doing, as the pill shows it. `retryAt` is a clock time in ms. */
export type Connection =
  | { state: "connecting" }
  | { state: "catching_up" }
  | { state: "live" }
  | { state: "reconnecting"; retryAt: number; attempt: number }
  | { state: "paused" }
  | { state: "ended" }
  | { state: "refused"; problem: Problem };

export interface SourceOptions {
  /** The address for a given cursor; the cursor itself travels as `Last-Event-ID`. */
  url: (cursor: string | null) => string;
  order: Order;
  headers: () => Record<string, string>;
  /** Messages in order, each event once; one call per chunk of the network. */
  deliver: (messages: FeedMessage[]) => void;
  changed: (connection: Connection) => void;
  fetch?: typeof fetch;
  random?: () => number;
}

export const sourceLimits = {
  /** The server pings every 10 s; two and a half silent periods mean a dead peer. */
  idle_ms: 25_000,
  /** A slice of work between two looks at the screen. */
  slice_ms: 12,
  /** So many times the same hole is taken for a fault of the way, then it is told as a gap. */
  holesAtOneCursor_max: 5,
};

type Outcome = { kind: "ended" } | { kind: "refused"; problem: Problem } | { kind: "cut"; wait_ms: number };

const cut = (wait_ms = 0): Outcome => ({ kind: "cut", wait_ms });
const retried = new Set([408, 425, 429]);

/**
 * Follows one stream until it ends, over as many connections as that takes. A connection is worth nothing:
 * whatever breaks it (a cut, silence, a frame out of order, a malformed line), the next one starts at the
 * cursor of the last event handed on. Only `stream.end`, 204 and a refusal are final; a clean end of the
 * body is not.
 */
export class Source {
  readonly #options: SourceOptions;
  #abort: AbortController | null = null;
  #wake: (() => void) | null = null;
  #stopped = false;
  #paused = false;
  #started = false;
  #attempt = 0;
  #retry_ms = backoffLimits.floor_ms;
  #holes = 0;
  #wasLive = false;

  constructor(options: SourceOptions) {
    this.#options = options;
  }

  start(): void {
    if (this.#started) return;
    this.#started = true;
    void this.#follow();
  }

  stop(): void {
    this.#stopped = true;
    this.#abort?.abort();
    this.#wake?.();
  }

  /** Ends a back-off early; does nothing while connected. */
  retryNow(): void {
    this.#attempt = 0;
    this.#wake?.();
  }

  /** Gives the connection back (browsers allow six per host) and keeps the cursor. */
  pause(): void {
    if (this.#paused || this.#stopped) return;
    this.#paused = true;
    this.#abort?.abort();
    this.#wake?.();
  }

  resume(): void {
    this.#paused = false;
    this.retryNow();
  }

  async #follow(): Promise<void> {
    while (!this.#stopped) {
      if (this.#paused) {
        this.#options.changed({ state: "paused" });
        await this.#sleep(null);
        continue;
      }
      const outcome = await this.#connect();
      if (this.#stopped) return;
      if (outcome.kind === "ended") return this.#options.changed({ state: "ended" });
      if (outcome.kind === "refused") {
        return this.#options.changed({ state: "refused", problem: outcome.problem });
      }
      if (this.#paused) continue;
      await this.#backOff(outcome.wait_ms);
    }
  }

  async #backOff(wait_ms: number): Promise<void> {
    const random = this.#options.random ?? Math.random;
    const delay = backoff(this.#attempt, this.#retry_ms, random(), wait_ms);
    this.#attempt += 1;
    this.#options.changed({ state: "reconnecting", retryAt: Date.now() + delay, attempt: this.#attempt });
    await this.#sleep(delay);
  }

  async #connect(): Promise<Outcome> {
    const abort = new AbortController();
    this.#abort = abort;
    const watchdog = new Watchdog(sourceLimits.idle_ms, () => abort.abort());
    const cursor = this.#options.order.cursor;
    this.#options.changed({ state: this.#wasLive || cursor !== null ? "catching_up" : "connecting" });
    try {
      const headers: Record<string, string> = { accept: "text/event-stream", ...this.#options.headers() };
      if (cursor !== null) headers["last-event-id"] = cursor;
      const request = { headers, signal: abort.signal, cache: "no-store" as const };
      const response = await (this.#options.fetch ?? fetch)(this.#options.url(cursor), request);
      const answer = await this.#answered(response);
      if (answer !== null) return answer;
      this.#options.changed({ state: "catching_up" });
      return await this.#read(response, watchdog);
    } catch {
      // The network's own errors say nothing useful, and an abort is our own doing.
      return cut();
    } finally {
      watchdog.stop();
      abort.abort();
    }
  }

  /** What the status line alone decides; `null` = a stream follows. */
  async #answered(response: Response): Promise<Outcome | null> {
    if (response.status === 204) return { kind: "ended" };
    const wait_ms = retryAfterMs(response.headers.get("retry-after"), Date.now());
    if (response.status >= 500 || retried.has(response.status)) return cut(wait_ms);
    if (!response.ok) return { kind: "refused", problem: await problemOf(response) };
    const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
    // Something in between answered in the server's place (a login page, a proxy's notice): try again.
    return isStream && response.body !== null ? null : cut(wait_ms);
  }

  async #read(response: Response, watchdog: Watchdog): Promise<Outcome> {
    let frames: Frame[] = [];
    const parser = createParser({
      onEvent: (frame) => frames.push({ event: frame.event, id: frame.id, data: frame.data }),
      onRetry: (retry_ms) => (this.#retry_ms = retry_ms),
    });
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    const decoder = new TextDecoder();
    let sliceStart = performance.now();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return cut();
      watchdog.feed();
      parser.feed(decoder.decode(value, { stream: true }));
      const batch = frames;
      frames = [];
      const outcome = this.#take(batch);
      if (outcome !== null) return outcome;
      if (performance.now() - sliceStart > sourceLimits.slice_ms) {
        await breath();
        sliceStart = performance.now();
      }
    }
  }

  /** Orders one chunk's frames and hands them on; an outcome ends the connection. */
  #take(frames: Frame[]): Outcome | null {
    const messages: FeedMessage[] = [];
    let outcome: Outcome | null = null;
    let caughtUp = false;
    try {
      for (const frame of frames) {
        const message = decode(frame);
        if (message === null) continue;
        if (message.kind === "event" && !this.#isNext(message, messages)) continue;
        if (message.kind === "gap" && message.first_seq !== null)
          this.#options.order.skipTo(message.first_seq);
        if (message.kind === "draining") this.#retry_ms = message.retry_ms;
        if (message.kind === "caught_up") {
          caughtUp = true;
          if (message.cursor !== null) this.#options.order.moveTo(message.cursor);
        }
        messages.push(message);
        if (message.kind === "end") {
          outcome = { kind: "ended" };
          break;
        }
      }
    } catch {
      // A hole or a broken line: what came before it is good and is handed on, the rest is read again.
      outcome = cut();
    }
    if (messages.length > 0) {
      this.#attempt = 0;
      this.#options.deliver(messages);
    }
    if (caughtUp && outcome === null) {
      this.#wasLive = true;
      this.#options.changed({ state: "live" });
    }
    return outcome;
  }

  #isNext(message: FeedMessage & { kind: "event" }, messages: FeedMessage[]): boolean {
    const { order } = this.#options;
    const before = order.cursor;
    const taken = order.take(message.event, message.id);
    if (taken === "new") this.#holes = 0;
    if (taken !== "hole") return taken === "new";
    this.#holes += 1;
    if (this.#holes < sourceLimits.holesAtOneCursor_max) throw new Error("hole");
    // The server itself has nothing in between: told as a gap, since silence would be a lie.
    order.skipTo(message.event.seq);
    messages.push({
      kind: "gap",
      requested_after: Number.parseInt(before ?? "0", 10),
      first_seq: message.event.seq,
    });
    this.#holes = 0;
    return order.take(message.event, message.id) === "new";
  }

  #sleep(delay_ms: number | null): Promise<void> {
    return new Promise((resolve) => {
      const timer = delay_ms === null ? null : setTimeout(() => this.#wake?.(), delay_ms);
      this.#wake = () => {
        if (timer !== null) clearTimeout(timer);
        this.#wake = null;
        resolve();
      };
    });
  }
}

class Watchdog {
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(
    readonly silence_ms: number,
    readonly bark: () => void,
  ) {
    this.feed();
  }

  feed(): void {
    this.stop();
    this.#timer = setTimeout(this.bark, this.silence_ms);
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
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
