import { Client, RunreelError, type CallOptions, type ClientOptions } from "@runreel/client";
import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import { chunksOf } from "./frames.js";
import { Message } from "./message.js";

export interface RunreelChatOptions extends Omit<ClientOptions, "onError"> {
  /** The agent of the server's configuration that answers. */
  agent: string;
  /** Sent with every post, such as `{ tools }` with the tools that the page executes. */
  body?: object | (() => object);
  /**
   * `true` makes `stop` cancel the run. Only for chats that are made outside of components (`useChat({ chat })`): one that
   * `useChat` makes is also stopped when its component goes away. Without it, `stop` leaves the run alone.
   */
  stopCancels?: boolean;
  /**
   * `true` makes `resumeStream` show the last answer also if it has ended. Only for a page that resumes because an answer was
   * under way when it loaded what was said before, and that left it out: it may end in between.
   */
  resumesEnded?: boolean;
  /** How often in a row a lost answer is asked for without anything new, before the chat reports an error; 20 by default. */
  retries?: number;
}

type Sent<M extends UIMessage> = Parameters<ChatTransport<M>["sendMessages"]>[0];
type Resumed<M extends UIMessage> = Parameters<ChatTransport<M>["reconnectToStream"]>[0];

/** At most, before the first repetition and before any: chance spreads what waits for one server. */
const firstWait_ms = 250;
const wait_ms_max = 5_000;
/** Answers of a moment: no network, a server that restarts or is busy, a proxy without one. */
const passing = new Set([0, 408, 425, 429, 502, 503, 504]);

/** What comes of a connection that broke. */
const brokenOff = { done: true, value: false } as const;

/** One answer that is being followed. */
interface Following {
  chatId: string;
  message: Message;
  headers: Record<string, string>;
  /** Aborted when the chat wants no more of it. */
  signal: AbortSignal | undefined;
  /** How often the chat had been resumed when it began. */
  turn: number;
  /** Ends its connection. */
  over: AbortController;
}

/**
 * The transport of `useChat` for an agent behind Runreel: `new Chat({ transport: new RunreelChatTransport({ agent }) })`.
 *
 * Beyond what `DefaultChatTransport` does, an answer that is cut off in the middle goes on by itself, each part of it once;
 * `cancel` ends the run, not only its display; a refused credential is renewed; and of the messages only the new ones
 * travel. `resumeStream` (`useChat({ resume: true })`) shows a message that is under way from its beginning.
 *
 * Requests that the server refuses reject with a `RunreelError`, and so does a chat that was cut off for longer than
 * `retries` allow. A post is not repeated: whether the server got it is for `resumeStream` to see.
 */
export class RunreelChatTransport<M extends UIMessage = UIMessage> implements ChatTransport<M> {
  /** What `resumeStream` shows begins at the beginning of the message. */
  readonly resumeStreamIsReplay = true;
  readonly #client: Client;
  readonly #path: string;
  readonly #agent: string;
  readonly #stopCancels: boolean;
  readonly #resumesEnded: boolean;
  readonly #body: RunreelChatOptions["body"];
  readonly #retries: number;
  /** How often each chat was resumed: a new one aborts the one before, which is no stop. */
  readonly #resumed = new Map<string, number>();

  constructor({
    agent,
    body,
    stopCancels = false,
    resumesEnded = false,
    retries = 20,
    ...options
  }: RunreelChatOptions) {
    this.#client = new Client(options);
    this.#path = `/api/ai-sdk/agents/${encodeURIComponent(agent)}`;
    this.#agent = agent;
    this.#stopCancels = stopCancels;
    this.#resumesEnded = resumesEnded;
    this.#body = body;
    this.#retries = retries;
  }

  async sendMessages({ chatId, messages, trigger, messageId, abortSignal, headers, body }: Sent<M>) {
    const last = messages.findLastIndex(({ role }) => role === "assistant");
    // What came before the last answer is in the agent's thread.
    const news = messages.slice(Math.max(last, 0));
    const own = typeof this.#body === "function" ? this.#body() : this.#body;
    const posted = { ...own, ...body, id: chatId, messages: news, trigger, messageId };
    const answer = messages.at(-1);
    const message = new Message(answer?.role === "assistant" ? answer : undefined);
    const over = new AbortController();
    const turn = this.#resumed.get(chatId) ?? 0;
    const following = { chatId, message, headers: plain(headers), signal: abortSignal, over, turn };
    // Not aborted with the chat's signal: the run is there when it is answered, and may be cancelled then.
    const call = { method: "POST", body: posted, headers: following.headers, signal: over.signal };
    return this.#stream(following, this.#client.transport.call(this.#path, call));
  }

  async reconnectToStream({ chatId, abortSignal, headers }: Resumed<M>) {
    const turn = (this.#resumed.get(chatId) ?? 0) + 1;
    this.#resumed.set(chatId, turn);
    const over = new AbortController();
    const following = {
      chatId,
      message: new Message(),
      headers: plain(headers),
      signal: abortSignal,
      over,
      turn,
    };
    const response = await this.#ask(following, this.#resumesEnded ? { ended: true } : {});
    return response.status === 204 ? null : this.#stream(following, Promise.resolve(response));
  }

  /** Cancels the chat's run, and what works for it. Its answer then ends as aborted, here and in every other page. */
  async cancel(chatId: string): Promise<void> {
    const { runs } = await this.#client.runs.list({ thread_id: chatId, agent: this.#agent, limit: 1 });
    const [newest] = runs;
    if (newest === undefined || newest.ended_at !== null) return;
    await this.#client.runs.cancel(newest.run_id, "stopped by the user");
  }

  #ask({ chatId, headers, over }: Following, query: NonNullable<CallOptions["query"]>): Promise<Response> {
    const id = /^\.+$/.test(chatId) ? chatId.replaceAll(".", "%2E") : encodeURIComponent(chatId);
    return this.#client.transport.call(`${this.#path}/${id}/stream`, {
      query,
      headers,
      signal: over.signal,
    });
  }

  async #stream(following: Following, first: Promise<Response>): Promise<ReadableStream<UIMessageChunk>> {
    const { signal } = following;
    const stopped = new Promise<never>((_, reject) => {
      const stop = () => {
        void this.#stop(following, first);
        reject(new DOMException("The answer was stopped", "AbortError"));
      };
      if (signal?.aborted) queueMicrotask(stop);
      else signal?.addEventListener("abort", stop, { once: true });
    });
    // Nobody may be waiting when it happens.
    stopped.catch(() => undefined);
    const chunks = this.#chunks(following, first);
    // Refusals are told before there is a stream.
    await Promise.race([first, stopped]);
    return new ReadableStream<UIMessageChunk>(
      {
        async pull(controller) {
          const { done, value } = await Promise.race([chunks.next(), stopped]);
          if (done) controller.close();
          else controller.enqueue(value);
        },
        cancel: () => {
          following.over.abort();
          void chunks.return(undefined);
        },
      },
      { highWaterMark: 0 },
    );
  }

  /** The message to its end, over as many connections as it takes. */
  async *#chunks(
    following: Following,
    first: Promise<Response>,
  ): AsyncGenerator<UIMessageChunk, void, undefined> {
    const { message } = following;
    let response = await first;
    for (let attempt = 0; ;) {
      const chunks = chunksOf(response.body as ReadableStream<Uint8Array>);
      // An error may be the server's word for "come back", and is one only if the message goes on to its end.
      let held: UIMessageChunk[] = [];
      try {
        for (;;) {
          const { done, value } = await chunks.next().catch(() => brokenOff);
          if (done && value) yield* held;
          if (done && value) return;
          if (done || message.isReplacement(value)) break;
          const isError = value.type === "error";
          const passed = isError ? held : [...held, value];
          held = isError ? [value] : [];
          for (const chunk of passed) {
            for (const news of message.take(chunk)) {
              attempt = 0;
              yield news;
            }
          }
        }
      } finally {
        await chunks.return(false);
      }
      [response, attempt] = await this.#back(following, attempt);
      if (response.status === 204) throw new Error("the chat has no message any more");
      message.again();
    }
  }

  /** Asks for the message again until there is an answer; and how often it was asked for since something new came. */
  async #back(following: Following, attempt: number): Promise<[Response, number]> {
    for (let n = attempt; ; n++) {
      if (n > this.#retries) throw new Error(`the answer broke off ${n} times without anything new`);
      await pause(Math.random() * Math.min(firstWait_ms * 2 ** n, wait_ms_max), following.over.signal);
      try {
        return [await this.#ask(following, { ended: true }), n + 1];
      } catch (error) {
        const isPassing = error instanceof RunreelError && passing.has(error.status);
        if (!isPassing || n >= this.#retries) throw error;
      }
    }
  }

  /** Leaves an answer; and cancels it, if that is what a stop means and the chat is not only being resumed anew. */
  async #stop({ chatId, over, turn }: Following, first: Promise<Response>): Promise<void> {
    await Promise.resolve();
    const isAnew = turn !== (this.#resumed.get(chatId) ?? 0);
    try {
      await first;
      if (this.#stopCancels && !isAnew) await this.cancel(chatId);
    } catch {
      // Whoever stops it does not wait for this, and would only hear that there is nothing to stop.
    } finally {
      over.abort();
    }
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (then: () => void) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      then();
    };
    const stop = () => end(() => reject(signal.reason as Error));
    const timer = setTimeout(() => end(resolve), ms);
    signal.addEventListener("abort", stop);
  });
}

function plain(headers: Record<string, string> | Headers | undefined): Record<string, string> {
  return headers instanceof Headers ? Object.fromEntries(headers) : { ...headers };
}
