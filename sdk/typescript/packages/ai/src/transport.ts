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
   * `true` makes `stop` cancel the run. Only for chats created outside of components (`useChat({ chat })`): one created
   * by `useChat` is also stopped when its component unmounts. Without it, `stop` does not affect the run.
   */
  stopCancels?: boolean;
  /**
   * `true` makes `resumeStream` show the last answer also if it has ended. Only for a page that resumes because an
   * answer was unfinished when it loaded the earlier messages, and that left this answer out: it may have ended since.
   */
  resumesEnded?: boolean;
  /** How often in a row a lost answer is requested without progress before the chat reports an error; 20 by default. */
  retries?: number;
}

type Sent<M extends UIMessage> = Parameters<ChatTransport<M>["sendMessages"]>[0];
type Resumed<M extends UIMessage> = Parameters<ChatTransport<M>["reconnectToStream"]>[0];

/** The longest waits before the first retry and before any. The wait is random below that, to spread the load. */
const firstWait_ms = 250;
const wait_ms_max = 5_000;
/** Transient statuses: no network, a server that restarts or is busy, a proxy without a server. */
const passing = new Set([0, 408, 425, 429, 502, 503, 504]);

/** The result of a connection that broke. */
const brokenOff = { done: true, value: false } as const;

/** One answer that is being followed. */
interface Following {
  chatId: string;
  message: Message;
  headers: Record<string, string>;
  /** Aborted when the chat stops or leaves the answer. */
  signal: AbortSignal | undefined;
  /** How often the chat had been resumed when it began. */
  turn: number;
  /** Ends its connection. */
  over: AbortController;
}

/**
 * The transport of `useChat` for an agent behind Runreel: `new Chat({ transport: new RunreelChatTransport({ agent }) })`.
 *
 * Unlike with `DefaultChatTransport`, an answer that is cut off continues automatically, each part of it once; `cancel`
 * ends the run, not only its display; a refused credential is renewed; and only new messages are sent. `resumeStream`
 * (`useChat({ resume: true })`) shows an unfinished message from its beginning.
 *
 * Requests that the server refuses reject with a `RunreelError`, and so does a chat whose server is unreachable for
 * longer than `retries` allow; an answer that breaks off that often without progress fails with an `Error`. A post is
 * not repeated: `resumeStream` shows whether the server received it.
 */
export class RunreelChatTransport<M extends UIMessage = UIMessage> implements ChatTransport<M> {
  /** `resumeStream` shows the message from its beginning. */
  readonly resumeStreamIsReplay = true;
  readonly #client: Client;
  readonly #path: string;
  readonly #agent: string;
  readonly #stopCancels: boolean;
  readonly #resumesEnded: boolean;
  readonly #body: RunreelChatOptions["body"];
  readonly #retries: number;
  /** How often each chat was resumed: resuming aborts the stream before, which does not count as a stop. */
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
    // The messages before the last answer are in the agent's thread.
    const news = messages.slice(Math.max(last, 0));
    const own = typeof this.#body === "function" ? this.#body() : this.#body;
    const posted = { ...own, ...body, id: chatId, messages: news, trigger, messageId };
    const answer = messages.at(-1);
    const message = new Message(answer?.role === "assistant" ? answer : undefined);
    const over = new AbortController();
    const turn = this.#resumed.get(chatId) ?? 0;
    const following = { chatId, message, headers: plain(headers), signal: abortSignal, over, turn };
    // Not aborted with the chat's signal: once it is answered the run exists, and can be cancelled.
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

  /** Cancels the chat's run and its descendants. Its answer then ends as aborted, here and in every other page. */
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
    // Nothing may be awaiting it when it rejects.
    stopped.catch(() => undefined);
    const chunks = this.#chunks(following, first);
    // A refusal rejects before there is a stream.
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
      // An error is held back: if the connection ends right after it, it only asks to reconnect.
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

  /** Requests the message again until there is an answer. Also returns how often that was since the last progress. */
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

  /** Leaves an answer, and cancels its run if `stopCancels` is set and the chat is not just being resumed again. */
  async #stop({ chatId, over, turn }: Following, first: Promise<Response>): Promise<void> {
    await Promise.resolve();
    const isAnew = turn !== (this.#resumed.get(chatId) ?? 0);
    try {
      await first;
      if (this.#stopCancels && !isAnew) await this.cancel(chatId);
    } catch {
      // The caller does not wait for this, and it only fails if there is nothing to stop or no server.
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
