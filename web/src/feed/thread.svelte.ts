import {
  FeedOrder,
  isDelta,
  isEvent,
  RunreelError,
  withQuery,
  type Connection,
  type Problem,
  type Received,
  type Run,
  type RunEvent,
  type ThreadMessage,
} from "@runreel/client";
import {
  fields,
  isTerminal,
  messageText,
  statusAfter,
  Texts,
  textOf,
  type SpanText,
} from "@runreel/client/fold";
import { threads, type Thread } from "../api/threads";
import { follow, type Following } from "./follower";
import { hear } from "./hear";

const page_messages = 200;
/** More pages are read when the person asks for them. */
const pages_max = 20;
const soon_ms = 300;

/** A run of the thread with its messages, in the order of their seqs. */
export interface Turn {
  run_id: string;
  messages: readonly ThreadMessage[];
  /** The messages that are being written. */
  open: readonly SpanText[];
}

const textTypes = "message.*,run.*";

/**
 * A thread: its conversation across its runs, live. The stream is joined at its end first, earlier messages are read
 * after that; those in both are deduplicated by run and seq.
 */
export class ThreadStore {
  readonly thread_id: string;
  thread = $state.raw<Thread | null>(null);
  turns = $state.raw<readonly Turn[]>([]);
  runs = $state.raw<ReadonlyMap<string, Run>>(new Map());
  connection = $state.raw<Connection>({ state: "connecting", gap: null });
  problem = $state.raw<Problem | null>(null);
  loaded = $state(false);
  /** Where further messages begin; null if all were read. */
  next_cursor = $state.raw<string | null>(null);
  /** Where older runs begin; null if all are listed. */
  moreRuns = $state.raw<string | null>(null);
  readonly #byRun = new Map<string, Map<number, ThreadMessage>>();
  readonly #texts = new Map<string, Texts>();
  #stream: Following["stream"] | null = null;
  #undo: (() => void) | null = null;
  #abort = new AbortController();
  #looking: ReturnType<typeof setTimeout> | null = null;

  constructor(thread_id: string) {
    this.thread_id = thread_id;
  }

  start(): void {
    const path = `/api/stream/threads/${encodeURIComponent(this.thread_id)}`;
    const { stream, stop } = follow({
      path: (cursor) => withQuery(path, { types: textTypes, tail: cursor === null ? 0 : null }),
      order: new FeedOrder(),
      take: (received) => this.#take(received),
      commit: () => this.#commit(),
      changed: (connection) => {
        this.connection = connection;
        if (connection.state === "failed") this.problem = connection.error.problem;
      },
    });
    this.#stream = stream;
    this.#undo = stop;
  }

  stop(): void {
    this.#abort.abort();
    if (this.#looking !== null) clearTimeout(this.#looking);
    this.#undo?.();
  }

  retryNow(): void {
    this.#stream?.retryNow();
  }

  /** Reads the messages after those that were read. */
  async more(): Promise<void> {
    await this.#asked(this.#next());
  }

  /** Reads older runs than those that are listed. */
  async older(): Promise<void> {
    await this.#asked(this.#before());
  }

  async #next(): Promise<void> {
    const { signal } = this.#abort;
    for (let page = 0; page < pages_max; page += 1) {
      const cursor = this.next_cursor;
      const read = await threads.messages(
        this.thread_id,
        { limit: page_messages, ...(cursor !== null && { cursor }) },
        signal,
      );
      for (const message of read.messages) this.#put(message);
      this.next_cursor = read.next_cursor ?? null;
      if (this.next_cursor === null) break;
    }
    this.#commit();
  }

  async #before(): Promise<void> {
    const page = await threads.runs(this.thread_id, this.moreRuns, this.#abort.signal);
    this.moreRuns = page.next_cursor ?? null;
    this.#know(page.runs);
  }

  #take({ event }: Received): void {
    if (event.type === "stream.caught_up") return void this.#read();
    if (isEvent(event)) return this.#event(event);
    if (event.type === "message.snapshot") return this.#textsOf(event.run_id).snapshot(event);
    if (isDelta(event)) this.#textsOf(event.run_id).delta(event);
  }

  #event(event: RunEvent): void {
    hear(event.type);
    this.#textsOf(event.run_id).event(event);
    if (event.type === "message.completed") this.#put(messageOf(event));
    const status = statusAfter(event.type);
    if (status !== null && isTerminal(status)) this.#textsOf(event.run_id).close();
    if (status !== null) this.#look();
  }

  #look(): void {
    this.#looking ??= setTimeout(() => {
      this.#looking = null;
      void this.#asked(this.#describe());
    }, soon_ms);
  }

  async #read(): Promise<void> {
    await this.#asked(Promise.all([this.#describe(), this.#next()]).then(() => (this.loaded = true)));
  }

  async #describe(): Promise<void> {
    const { signal } = this.#abort;
    const [thread, page] = await Promise.all([
      threads.get(this.thread_id, signal),
      threads.runs(this.thread_id, null, signal),
    ]);
    this.thread = thread;
    if (!this.loaded) this.moreRuns = page.next_cursor ?? null;
    this.#know(page.runs);
  }

  /** Awaits an answer; a refusal is shown, unless the page was left. */
  async #asked(answer: Promise<unknown>): Promise<void> {
    try {
      await answer;
      this.problem = null;
    } catch (error) {
      if (this.#abort.signal.aborted) return;
      if (!(error instanceof RunreelError)) throw error;
      this.problem = error.problem;
    }
  }

  #know(runs: readonly Run[]): void {
    const known = new Map(this.runs);
    for (const run of runs) {
      const before = known.get(run.run_id);
      if (before === undefined || before.last_seq <= run.last_seq) known.set(run.run_id, run);
    }
    this.runs = known;
    this.#commit();
  }

  #put(message: ThreadMessage): void {
    const { run_id, seq } = message;
    const messages = this.#byRun.get(run_id) ?? new Map<number, ThreadMessage>();
    // A message with an artifact replaces one without; otherwise the first one is kept.
    if (!messages.has(seq) || message.artifact) messages.set(seq, message);
    this.#byRun.set(run_id, messages);
  }

  #textsOf(run_id: string): Texts {
    const texts = this.#texts.get(run_id) ?? new Texts();
    this.#texts.set(run_id, texts);
    return texts;
  }

  #commit(): void {
    const open = (run_id: string) =>
      [...(this.#texts.get(run_id)?.open.values() ?? [])]
        .filter(({ family }) => family === "message")
        .map((text) => ({ ...text }));
    const writing = [...this.#texts].filter(([, { open }]) => open.size > 0).map(([run_id]) => run_id);
    // The ids of runs sort by the time of their creation.
    const ids = [...new Set([...this.#byRun.keys(), ...this.runs.keys(), ...writing])].sort();
    this.turns = ids.map((run_id) => ({
      run_id,
      messages: [...(this.#byRun.get(run_id)?.values() ?? [])].sort((a, b) => a.seq - b.seq),
      open: open(run_id),
    }));
  }
}

/** A message in the form of the thread's list. */
export function messageOf(event: RunEvent): ThreadMessage {
  const payload = fields(event.payload);
  const pointer = payload["$artifact"];
  const isWhole = pointer === undefined;
  return {
    run_id: event.run_id,
    seq: event.seq,
    message_id: event.span_id ?? null,
    role: textOf(payload["role"]) ?? "assistant",
    agent: event.agent ?? null,
    content: isWhole ? (payload["content"] ?? null) : null,
    text: isWhole ? messageText(payload) : null,
    ...(isWhole ? {} : { artifact: fields(pointer) }),
    at: event.at,
  };
}
