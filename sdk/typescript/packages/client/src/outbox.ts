import { backoff, isPassing, retryAfterMs } from "./backoff.js";
import { problemOf, RunreelError, unreachable } from "./errors.js";
import { runPath } from "./runs.js";
import type { Transport } from "./transport.js";

/** How long the first event of a batch waits for others. */
const batch_ms = 50;
const batch_events_max = 500;
const batch_chars_max = 1_000_000;
/** Bounds of the queue of all runs of a client together; the ends of runs may use a quarter more. */
export const events_max = 10_000;
const chars_max = 32_000_000;
/** A request without an answer for this long is repeated; the server answers within 5 s. */
const answer_ms = 15_000;

/** A queued event as JSON. */
export interface Item {
  json: string;
  /** A delta: sent at most once. A lost one does no harm, because its span's end has the text. */
  isDelta: boolean;
  /** The end of a run. */
  isVital: boolean;
}

/** What the outboxes of a client share: the queue's capacity, and the error handler. */
export class Room {
  events = 0;
  chars = 0;
  dropped = 0;
  readonly #reported = new Set<string>();

  constructor(readonly onError: (error: Error) => void) {}

  has(item: Item): boolean {
    const more = item.isVital ? 1.25 : 1;
    return this.events < events_max * more && this.chars + item.json.length <= chars_max * more;
  }

  /** Reports each kind of error to the host once, or an unreachable server would fill its log. */
  report(error: Error): void {
    const kind = error instanceof RunreelError ? error.code : error.message;
    if (this.#reported.has(kind)) return;
    this.#reported.add(kind);
    try {
      this.onError(error);
    } catch {
      // An exception of the host's handler must not affect the emitter.
    }
  }
}

/** A caller that waits until `order` items have landed. */
type Waiter = readonly [order: number, done: (hasLanded: boolean) => void];

/** Why a request failed, and how long to wait before a retry; null where none would help. */
type Refusal = readonly [error: RunreelError, wait_ms: number | null];

/**
 * The unsent items of one run, in order. `put` never waits and never throws; batches are sent one after the other, and
 * repeated until they are answered. Every durable event has an `event_id`, so a repeat is stored once.
 */
export class Outbox {
  dropped = 0;
  /** Why the server accepts no more events of this run; null as long as it does. */
  over: string | null = null;
  readonly #transport: Transport;
  readonly #room: Room;
  #creation: string | null;
  readonly #after: Outbox | null;
  readonly #items: Item[] = [];
  #waiters: Waiter[] = [];
  #order = 0;
  #landed = 0;
  #attempt = 0;
  #batch_events = batch_events_max;
  #isSending = false;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #wake: (() => void) | null = null;

  /** `creation` is the body that creates the run; null for one that exists. The run of `after` is created first. */
  constructor(
    transport: Transport,
    readonly run_id: string,
    room: Room,
    creation: string | null,
    after: Outbox | null,
  ) {
    this.#transport = transport;
    this.#room = room;
    this.#creation = creation;
    this.#after = after;
    this.#soon();
  }

  put(item: Item): void {
    if (this.over !== null || !this.#room.has(item)) {
      if (item.isDelta) return;
      return this.#lost(1, this.over ?? "the queue is full");
    }
    this.#items.push(item);
    this.#order += 1;
    this.#room.events += 1;
    this.#room.chars += item.json.length;
    if (this.#items.length >= batch_events_max) void this.#send();
    else this.#soon();
  }

  /** Whether everything put so far was stored or refused within the time. Sends at once. */
  flush(timeout_ms: number): Promise<boolean> {
    if (this.#creation === null && this.#landed >= this.#order) return Promise.resolve(true);
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), timeout_ms);
      const done = (hasLanded: boolean) => {
        clearTimeout(timer);
        resolve(hasLanded);
      };
      this.#waiters.push([this.#order, done]);
      this.#wake?.();
      void this.#send();
    });
  }

  #soon(): void {
    if (this.#isSending) return;
    this.#timer ??= setTimeout(() => void this.#send(), batch_ms);
  }

  async #send(): Promise<void> {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#isSending) return;
    this.#isSending = true;
    try {
      if (this.#creation !== null && this.#after !== null) await this.#after.#created();
      while (this.over === null && (this.#creation !== null || this.#items.length > 0)) {
        const wait_ms = await (this.#creation === null ? this.#sendBatch() : this.#create(this.#creation));
        if (wait_ms !== null) await this.#rest(wait_ms);
      }
    } finally {
      this.#isSending = false;
    }
  }

  /** Waits until the run was created or refused. */
  async #created(): Promise<void> {
    if (this.#creation !== null) await new Promise((resolve) => this.#waiters.push([0, resolve]));
  }

  async #create(body: string): Promise<number | null> {
    const refused = await this.#post("/api/runs", body);
    if (refused === null) this.#creation = null;
    else if (refused[1] !== null) return refused[1];
    else this.#end(refused[0]);
    this.#settle();
    return null;
  }

  async #sendBatch(): Promise<number | null> {
    const batch: Item[] = [];
    let chars = 0;
    for (const item of this.#items) {
      chars += item.json.length;
      if (batch.length >= this.#batch_events || (batch.length > 0 && chars > batch_chars_max)) break;
      batch.push(item);
    }
    const body = `[${batch.map((item) => item.json).join(",")}]`;
    const refused = await this.#post(`${runPath(this.run_id)}/events`, body);
    if (refused === null) {
      this.#batch_events = batch_events_max;
      this.#remove(0, batch.length);
      return null;
    }
    const [error, wait_ms] = refused;
    if (wait_ms !== null) {
      // Its outcome is unknown, and the server does not recognise a repeated delta.
      for (let at = batch.length - 1; at >= 0; at -= 1) if (batch[at]?.isDelta) this.#remove(at, 1);
      return wait_ms;
    }
    const named = /^events\[(\d+)\]/.exec(error.problem.field ?? "");
    if (error.code === "run_ended" || error.status === 403 || error.status === 404) this.#end(error);
    else if (named !== null && batch[Number(named[1])]) this.#drop(Number(named[1]), error);
    else if (batch.length > 1) this.#batch_events = Math.ceil(batch.length / 2);
    else this.#drop(0, error);
    return null;
  }

  /** Null when it was stored. */
  async #post(path: string, body: string): Promise<Refusal | null> {
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(), answer_ms);
    let error: RunreelError;
    let after_ms = 0;
    try {
      const headers = { "content-type": "application/json", accept: "application/json" };
      const response = await this.#transport.open(path, {
        method: "POST",
        headers,
        body,
        signal: late.signal,
      });
      if (response.ok) {
        await response.body?.cancel();
        this.#attempt = 0;
        return null;
      }
      after_ms = retryAfterMs(response.headers.get("retry-after"), Date.now());
      error = new RunreelError(await problemOf(response));
    } catch (cause) {
      error = unreachable(cause);
    } finally {
      clearTimeout(timer);
    }
    const { status } = error;
    // The credential may be renewed in the meantime.
    if (!isPassing(status) && status !== 401) return [error, null];
    if (status !== 429) this.#room.report(error);
    this.#attempt += 1;
    return [error, backoff(this.#attempt - 1, 1000, Math.random(), after_ms)];
  }

  /** The timer does not keep a program alive that would only wait for an unreachable server. */
  #rest(wait_ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#wake?.(), wait_ms);
      (timer as { unref?: () => void }).unref?.();
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = null;
        resolve();
      };
    });
  }

  #drop(at: number, error: RunreelError): void {
    this.#lost(1, error.message, error);
    this.#remove(at, 1);
  }

  /** The server accepts no more events of this run. */
  #end(error: RunreelError): void {
    this.over = error.message;
    this.#creation = null;
    const lost = this.#items.filter((item) => !item.isDelta).length;
    if (lost > 0) this.#lost(lost, error.message, error);
    this.#remove(0, this.#items.length);
  }

  #lost(count: number, why: string, error = new Error(`events are dropped: ${why}`)): void {
    this.dropped += count;
    this.#room.dropped += count;
    this.#room.report(error);
  }

  #remove(at: number, count: number): void {
    for (const item of this.#items.splice(at, count)) {
      this.#room.events -= 1;
      this.#room.chars -= item.json.length;
      this.#landed += 1;
    }
    this.#settle();
  }

  #settle(): void {
    if (this.#creation !== null) return;
    const isDone = ([order]: Waiter) => this.#landed >= order;
    for (const [, done] of this.#waiters.filter(isDone)) done(true);
    this.#waiters = this.#waiters.filter((waiter) => !isDone(waiter));
  }
}
