import { backoff, floor_ms, isPassing, retryAfterMs } from "./backoff.js";
import { problemOf, RunreelError, unreachable } from "./errors.js";
import { decode, isEvent, type Gap, type Received, type StreamEvent } from "./events.js";
import type { Order } from "./order.js";
import { sseParser } from "./sse.js";
import { Status } from "./status.js";

/** The parts of a stream; `client.stream` and the like provide them. */
export interface StreamOptions {
  /** Sends the request; the cursor is in the header `Last-Event-ID` of `init`, and null at the very beginning. */
  open: (cursor: string | null, init: RequestInit & { headers: Record<string, string> }) => Promise<Response>;
  order: Order;
  /** Aborting it ends the stream: its reader gets the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Random numbers in [0, 1), which spread the waits. */
  random?: () => number;
}

/** The server pings every 10 s; two and a half silent periods mean a dead peer. */
export const idle_ms = 25_000;
/** A hole is taken for a fault of the connection until it has been found this often; then it is reported as a gap. */
export const holes_max = 5;

/** How a connection ended: the stream has ended, it was refused, or it was cut and another one follows. */
type Outcome = "ended" | RunreelError | Cut;
type Cut = readonly [wait_ms: number, error?: unknown];

const cut = (wait_ms = 0, error?: unknown): Cut => [wait_ms, error];
type Frame = Parameters<typeof decode>;

/**
 * One stream, over as many connections as it takes: `for await (const event of stream)`. Whatever breaks a connection
 * (a cut, silence, a frame out of order, a malformed line), the next one starts at the cursor of the last event
 * yielded. Only `stream.end`, 204 and a refusal are final; a clean end of the body is not.
 *
 * It can be read once. Reading drives it: no request is sent before, and a slow reader slows the server down.
 */
export class EventStream implements AsyncIterable<StreamEvent> {
  /** The state of the connection, to subscribe to. */
  readonly status = new Status();
  readonly #options: StreamOptions;
  #abort: AbortController | null = null;
  #wake: (() => void) | null = null;
  #isRead = false;
  #isClosed = false;
  #isPaused = false;
  #attempt = 0;
  #retry_ms = floor_ms;
  #holes = 0;
  #wasOpen = false;
  #handedOn: string | null;

  constructor(options: StreamOptions) {
    this.#options = options;
    this.#handedOn = options.order.cursor;
  }

  /** The id of the last event that its reader got: the `after` of a stream that continues from here. */
  get lastEventId(): string | null {
    return this.#handedOn;
  }

  /** Event by event. Ends when the run has, throws a `RunreelError` when the server refuses, or the signal's reason. */
  async *[Symbol.asyncIterator](): AsyncGenerator<StreamEvent, void, undefined> {
    for await (const batch of this.batches()) {
      for (const { event, id } of batch) {
        this.#handedOn = id ?? this.#handedOn;
        yield event;
      }
      // In a feed that was read to its end, the cursor may be ahead of the last event yielded.
      this.#handedOn = this.#options.order.cursor;
    }
  }

  /** The same events in batches as they arrive, each once and in order. */
  async *batches(): AsyncGenerator<Received[], void, undefined> {
    if (this.#isRead) throw new Error("a stream can be read once");
    this.#isRead = true;
    const { signal } = this.#options;
    const stop = () => this.close();
    signal?.addEventListener("abort", stop);
    try {
      while (!this.#isClosed && !signal?.aborted) {
        if (this.#isPaused) {
          this.status.set({ state: "paused" });
          await this.#sleep(null);
          continue;
        }
        const outcome = yield* this.#connection();
        if (this.#isClosed) break;
        if (outcome === "ended") return this.status.set({ state: "ended" });
        if (outcome instanceof RunreelError) {
          this.status.set({ state: "failed", error: outcome });
          throw outcome;
        }
        if (!this.#isPaused) await this.#backOff(outcome);
      }
      signal?.throwIfAborted();
    } finally {
      signal?.removeEventListener("abort", stop);
      this.close();
    }
  }

  /** Closes the connection, and ends the reader's loop. */
  close(): void {
    this.#isClosed = true;
    this.#abort?.abort();
    this.#wake?.();
    const { state } = this.status.getSnapshot();
    if (state !== "ended" && state !== "failed" && state !== "closed") this.status.set({ state: "closed" });
  }

  /** Ends a back-off early; does nothing while connected. */
  retryNow(): void {
    this.#attempt = 0;
    this.#wake?.();
  }

  /** Closes the connection (browsers allow six per host over HTTP/1.1) and keeps the cursor. */
  pause(): void {
    this.#isPaused = true;
    this.#abort?.abort();
    this.#wake?.();
  }

  resume(): void {
    this.#isPaused = false;
    this.retryNow();
  }

  async #backOff([wait_ms, error]: Cut): Promise<void> {
    const random = this.#options.random ?? Math.random;
    const delay = backoff(this.#attempt, this.#retry_ms, random(), wait_ms);
    this.#attempt += 1;
    this.status.set({ state: "reconnecting", retryAt: Date.now() + delay, attempt: this.#attempt, error });
    await this.#sleep(delay);
  }

  /** One connection, from the request to its end. */
  async *#connection(): AsyncGenerator<Received[], Outcome, undefined> {
    const abort = new AbortController();
    this.#abort = abort;
    const { cursor } = this.#options.order;
    this.status.set({ state: this.#wasOpen ? "catching-up" : "connecting" });
    const headers: Record<string, string> = { accept: "text/event-stream" };
    if (cursor !== null) headers["last-event-id"] = cursor;
    let response: Response;
    try {
      const init = { headers, signal: abort.signal, cache: "no-store" as const };
      response = await this.#heard(this.#options.open(cursor, init));
    } catch (error) {
      return cut(0, error instanceof TypeError ? unreachable(error) : error);
    }
    try {
      const answer = await this.#answered(response);
      if (answer !== null) return answer;
      this.#wasOpen = true;
      this.status.set({ state: "catching-up" });
      return yield* this.#read(response.body as ReadableStream<Uint8Array>);
    } catch {
      // The network's errors are not informative, and an abort was caused here.
      return cut();
    } finally {
      abort.abort();
    }
  }

  /** The outcome if status and content type decide it; `null` = a stream follows. */
  async #answered(response: Response): Promise<Outcome | null> {
    if (response.status === 204) return "ended";
    const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
    if (response.status === 200 && isStream) return null;
    const wait_ms = retryAfterMs(response.headers.get("retry-after"), Date.now());
    const problem = await problemOf(response);
    // An intermediary answered in the server's place (a login page, a proxy's notice): try again.
    if (response.ok) problem.title = "Something else answered";
    const error = new RunreelError(problem);
    return response.ok || isPassing(response.status) ? cut(wait_ms, error) : error;
  }

  async *#read(body: ReadableStream<Uint8Array>): AsyncGenerator<Received[], Outcome, undefined> {
    let frames: Frame[] = [];
    const feed = sseParser(
      (...frame) => frames.push(frame),
      (retry_ms) => (this.#retry_ms = retry_ms),
    );
    const reader = body.getReader();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await this.#heard(reader.read());
      if (done) return cut();
      feed(decoder.decode(value, { stream: true }));
      const batch: Received[] = [];
      const outcome = this.#take(frames, batch);
      frames = [];
      if (batch.length > 0) {
        this.#attempt = 0;
        yield batch;
      }
      if (outcome !== null) return outcome;
      if (batch.some(({ event }) => event.type === "stream.caught_up")) this.status.set({ state: "live" });
    }
  }

  /** Waits for the peer; one that is silent for too long is dead. The time a reader takes is not counted. */
  #heard<T>(answer: Promise<T>): Promise<T> {
    const abort = this.#abort as AbortController;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => abort.abort(), idle_ms);
      // Some implementations of `fetch`, and all token sources, ignore the signal.
      abort.signal.onabort = () => reject(abort.signal.reason);
      answer.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  /** Orders one chunk's frames and adds what is yielded to `batch`; an outcome ends the connection. */
  #take(frames: Frame[], batch: Received[]): Outcome | null {
    const { order } = this.#options;
    try {
      for (const frame of frames) {
        const received = decode(...frame);
        if (received === null) continue;
        const { event } = received;
        if (isEvent(event)) {
          if (!this.#isNext(received, batch)) continue;
        } else if (event.type === "stream.gap") this.#lost(event as Gap);
        else if (event.type === "stream.caught_up") order.caughtUp(event.last_seq, event.cursor);
        else if (event.type === "stream.draining" || event.type === "stream.reset")
          this.#retry_ms = event.retry_ms;
        batch.push(received);
        if (event.type === "stream.end") return "ended";
      }
    } catch (error) {
      // A hole or a malformed line: the frames before it are yielded, the rest is read again.
      return cut(0, error);
    }
    return null;
  }

  #isNext(received: Received, batch: Received[]): boolean {
    const { order } = this.#options;
    const event = received.event as Parameters<Order["take"]>[0];
    const taken = order.take(event, received.id);
    if (taken === "new") this.#holes = 0;
    if (taken !== "hole") return taken === "new";
    this.#holes += 1;
    if (this.#holes < holes_max) throw new Error(`a hole before seq ${event.seq}`);
    // The server itself has nothing in between: reported as a gap rather than passed over in silence.
    const gap: Gap = {
      type: "stream.gap",
      requested_after: parseInt(order.cursor ?? "0"),
      first_seq: event.seq,
    };
    this.#lost(gap);
    batch.push({ event: gap, id: null, data: JSON.stringify(gap) });
    this.#holes = 0;
    return order.take(event, received.id) === "new";
  }

  #lost(gap: Gap): void {
    if (gap.first_seq !== null) this.#options.order.skipTo(gap.first_seq);
    this.status.set(this.status.getSnapshot(), gap);
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
