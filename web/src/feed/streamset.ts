import { silent_ms, type StreamRequest } from "./streamrequest";

/** One stream of one tab. */
export interface Subscription {
  wanted: StreamRequest;
  /** Where it continues if the connection is replaced. */
  cursor: string | null;
  isCaughtUp: boolean;
  isAnswered: boolean;
  /** Called with the answer that a request of its own would have got. */
  answer: (status: number, text: string) => void;
  text: (text: string) => void;
  /** Called at the end; `isCut` when that is not the stream's own end. */
  over: (isCut: boolean) => void;
}

/** The server's bound. */
const subscriptions_max = 64;
/** Changes come in groups: a page leaves one stream and opens another. */
const soon_ms = 50;
const later_ms = 2_000;

/**
 * A connection with up to `subscriptions_max` streams. Its set does not change: for another set another connection is
 * opened, each stream after its cursor, and the old one is left as soon as the new one delivers.
 */
export class StreamSet {
  readonly #ask: (body: string, signal: AbortSignal) => Promise<Response>;
  readonly #onServer: (isThere: boolean) => void;
  readonly #all = new Set<Subscription>();
  /** The connection that is read, and one that was requested and has not delivered yet. */
  #current: AbortController | null = null;
  #pending: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #due_ms = 0;

  /** `onServer` is called with whether the server is reachable, each time that shows. */
  constructor(
    ask: (body: string, signal: AbortSignal) => Promise<Response>,
    onServer: (isThere: boolean) => void,
  ) {
    this.#ask = ask;
    this.#onServer = onServer;
  }

  get hasRoom(): boolean {
    return this.#all.size < subscriptions_max;
  }

  get isEmpty(): boolean {
    return this.#all.size === 0;
  }

  add(subscription: Subscription): void {
    this.#all.add(subscription);
    this.#change(soon_ms);
  }

  remove(subscription: Subscription): void {
    this.#all.delete(subscription);
    if (!this.isEmpty) return this.#change(later_ms);
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#pending?.abort();
    this.#current?.abort();
    this.#pending = this.#current = null;
  }

  #change(after_ms: number): void {
    const due_ms = Date.now() + after_ms;
    if (this.#timer !== null && this.#due_ms <= due_ms) return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#due_ms = due_ms;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#connect();
    }, after_ms);
  }

  async #connect(): Promise<void> {
    if (this.isEmpty) return;
    this.#pending?.abort();
    const abort = new AbortController();
    this.#pending = abort;
    const on = new Map([...this.#all].map((each, at) => [`s${at}`, each]));
    const subscriptions = [...on].map(([name, { wanted, cursor }]) => {
      const { tail, ...rest } = wanted;
      return { name, ...rest, ...(cursor !== null ? { after: cursor } : tail !== undefined && { tail }) };
    });
    let refusal = { status: 0, text: "" };
    try {
      const response = await this.#ask(JSON.stringify({ subscriptions }), abort.signal);
      if (response.status === 200 && response.body !== null)
        await this.#read(response.body.getReader(), on, abort);
      else refusal = { status: response.status, text: await response.text() };
    } catch {
      // The network's errors are not informative, and an abort was caused here.
    }
    if (this.#pending === abort) {
      this.#pending = null;
      this.#refuse(on.values(), refusal.status, refusal.text);
    } else if (this.#current === abort) {
      this.#current = null;
      this.#onServer(false);
      // Its streams continue on the next connection, if that has been requested.
      if (this.#pending === null) this.#refuse(on.values(), 0, "");
    }
  }

  /** Ends these streams, except those that are on another connection. */
  #refuse(on: Iterable<Subscription>, status: number, text: string): void {
    if (status === 0 || status >= 500) this.#onServer(false);
    for (const each of on) {
      if (!this.#all.has(each) || (each.isAnswered && this.#current !== null)) continue;
      this.#end(each, status, text);
    }
  }

  /** Removes a stream, and reports why. */
  #end(each: Subscription, status: number, text: string): void {
    this.#all.delete(each);
    if (!each.isAnswered) each.answer(status, text);
    each.over(each.isAnswered);
  }

  async #read(
    reader: ReadableStreamDefaultReader<Uint8Array>,
    on: ReadonlyMap<string, Subscription>,
    abort: AbortController,
  ): Promise<void> {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const timer = setTimeout(() => abort.abort(), silent_ms);
      const { done, value } = await reader.read().finally(() => clearTimeout(timer));
      if (done) return;
      if (this.#pending !== abort && this.#current !== abort) return abort.abort();
      const frames = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = frames.pop() ?? "";
      if (this.#pending === abort) {
        // A server without room sends only that.
        if (!frames.some(speaks)) continue;
        this.#pending = null;
        this.#current?.abort();
        this.#current = abort;
        this.#onServer(true);
      }
      this.#hand(frames, on);
    }
  }

  /** Passes frames on, those of one stream together. */
  #hand(frames: readonly string[], on: ReadonlyMap<string, Subscription>): void {
    const texts = new Map<Subscription, string>();
    const ends: (() => void)[] = [];
    for (const frame of frames) {
      const lines = frame.split("\n");
      const [name, type] = eventOf(lines);
      if (name === null) {
        // A ping or a `retry:`, for all streams.
        for (const each of on.values())
          if (each.isAnswered) texts.set(each, `${texts.get(each) ?? ""}${frame}\n\n`);
        continue;
      }
      const each = on.get(name);
      if (each === undefined || !this.#all.has(each)) continue;
      const data = valueOf(lines, "data: ") ?? "";
      if (type === "stream.failed" || type === "stream.gone") {
        const status = type === "stream.gone" ? 404 : statusOf(data);
        ends.push(() => this.#end(each, status, type === "stream.gone" ? gone : data));
        continue;
      }
      each.cursor = valueOf(lines, "id: ") ?? each.cursor;
      if (type === "stream.caught_up") {
        each.cursor = cursorOf(data) ?? each.cursor;
        // It was read to its end before, on another connection.
        if (each.isCaughtUp) continue;
        each.isCaughtUp = true;
      }
      if (!each.isAnswered) {
        each.isAnswered = true;
        each.answer(200, "");
      }
      const own = lines.map((line) => (line.startsWith("event: ") ? `event: ${type}` : line)).join("\n");
      texts.set(each, `${texts.get(each) ?? ""}${own}\n\n`);
      if (type === "stream.end")
        ends.push(() => {
          this.#all.delete(each);
          each.over(false);
        });
    }
    for (const [each, text] of texts) if (this.#all.has(each)) each.text(text);
    for (const end of ends) end();
  }
}

/** Only \n ends a line of a frame: JSON may contain other characters that a pattern takes for line endings. */
const valueOf = (lines: readonly string[], prefix: string): string | undefined =>
  lines.find((line) => line.startsWith(prefix))?.slice(prefix.length);

/** The name of the event's stream, and its type; the name is null if it is for all streams. */
function eventOf(lines: readonly string[]): [name: string | null, type: string] {
  const event = valueOf(lines, "event: ") ?? "";
  const at = event.indexOf("/");
  return at < 0 ? [null, event] : [event.slice(0, at), event.slice(at + 1)];
}

/** Whether a frame shows that the connection delivers: an event of one of its streams, or a ping. */
const speaks = (frame: string): boolean => frame.startsWith(":") || eventOf(frame.split("\n"))[0] !== null;

const gone = JSON.stringify({ code: "not_found", title: "Not found", status: 404 });

const member = (data: string, name: string): unknown => {
  try {
    return (JSON.parse(data) as Record<string, unknown>)[name];
  } catch {
    return undefined;
  }
};
const statusOf = (data: string): number => Number(member(data, "status")) || 500;
const cursorOf = (data: string): string | null => {
  const cursor = member(data, "cursor");
  return typeof cursor === "string" ? cursor : null;
};
