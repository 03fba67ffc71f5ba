import { segment, type Query, type Transport } from "./transport.js";
import type * as wire from "./types.js";

/** Filters of a list of runs; `cursor` is the `next_cursor` of the page before. */
export interface RunFilter extends Query {
  /** Several, separated by commas. */
  status?: string | null;
  thread_id?: string | null;
  agent?: string | null;
  tag?: string | null;
  role?: string | null;
  external_id?: string | null;
  parent_run_id?: string | null;
  /** Words that must all occur in the run: in its title, agent, tags, id, input, messages, errors or payloads. */
  q?: string | null;
  /** Bounds of `created_at`, RFC 3339: `since` is inclusive, `until` exclusive. */
  since?: string | null;
  until?: string | null;
  cursor?: string | null;
  /** 1 to 1000, 100 by default. */
  limit?: number | null;
}

/** An answer to an interrupt. */
export interface Answer {
  interrupt_id: string;
  decision: wire.Decision;
  /** Any JSON of at most 64 KiB. */
  value?: unknown;
}

/** What a read token covers, and for how long. */
export interface ReadToken {
  /** Seconds: 3 600 by default, at most 86 400. */
  ttl_s?: number;
  /** The descendants of the run as well. */
  tree?: boolean;
}

export const runPath = (run_id: string): string => `/api/runs/${segment(run_id)}`;

/** The routes of runs. A refusal is a `RunreelError`; nothing is retried automatically. */
export class Runs {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** With a `run_id` of your own (UUID version 7), or through {@link getOrCreate}, it is safe to repeat. */
  create(run: wire.CreateRun = {}, signal?: AbortSignal): Promise<wire.Run> {
    return this.#send("POST", "/api/runs", run, signal);
  }

  /** The run with this external id, created if there is none. */
  getOrCreate(external_id: string, run: wire.CreateRun = {}, signal?: AbortSignal): Promise<wire.Run> {
    return this.#send("PUT", `/api/runs/by-external-id/${segment(external_id)}`, run, signal);
  }

  /** The run as it is now; 404 `not_found` when there is none, or it is another principal's. */
  get(run_id: string, signal?: AbortSignal): Promise<wire.Run> {
    return this.#transport.json(runPath(run_id), { signal });
  }

  /** A page, newest first. */
  list(filter: RunFilter = {}, signal?: AbortSignal): Promise<wire.RunPage> {
    return this.#transport.json("/api/runs", { query: filter, signal });
  }

  /** Ends the run and every descendant that has not ended. */
  cancel(run_id: string, reason?: string): Promise<wire.Run> {
    return this.#send("POST", `${runPath(run_id)}/cancel`, { reason });
  }

  /** Removes an ended run for ever, with its events and artifacts. */
  async delete(run_id: string): Promise<void> {
    await this.#transport.call(runPath(run_id), { method: "DELETE" });
  }

  /** A page of the log after a cursor. `types` are exact types and families such as `tool.*`. */
  events(
    run_id: string,
    { types, ...query }: { after?: string | number; limit?: number; types?: readonly string[] } = {},
    signal?: AbortSignal,
  ): Promise<wire.EventPage> {
    return this.#transport.json(`${runPath(run_id)}/events`, {
      query: { ...query, types: types?.join(",") },
      signal,
    });
  }

  /** Stores events, all or none. With an `event_id` on each it is safe to repeat. */
  emit(run_id: string, events: readonly wire.NewEvent[], signal?: AbortSignal): Promise<wire.EmitReply> {
    return this.#send("POST", `${runPath(run_id)}/events`, events, signal);
  }

  /** Its spans and their sums. */
  timeline(run_id: string, signal?: AbortSignal): Promise<wire.Timeline> {
    return this.#transport.json(`${runPath(run_id)}/timeline`, { signal });
  }

  /** Answers an interrupt. The first answer counts: a different one is 409 `interrupt_closed`. */
  answer(run_id: string, answer: Answer): Promise<wire.Run> {
    return this.#send("POST", `${runPath(run_id)}/resume`, answer);
  }

  /** Renews the run's lease. */
  async heartbeat(run_id: string): Promise<void> {
    await this.#transport.call(`${runPath(run_id)}/heartbeat`, { method: "POST" });
  }

  /** A token that reads this run (or its tree) and nothing else, for a server to give to a page. */
  createReadToken(run_id: string, wanted: ReadToken = {}): Promise<wire.NewToken> {
    return this.#send("POST", `${runPath(run_id)}/tokens`, wanted);
  }

  #send<T>(method: string, path: string, body: unknown, signal?: AbortSignal): Promise<T> {
    return this.#transport.json(path, { method, body, signal });
  }
}

const threadPath = (thread_id: string) => `/api/threads/${segment(thread_id)}`;

/** The routes of threads that a page needs. */
export class Threads {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** A page of messages, oldest first. */
  messages(
    thread_id: string,
    page: { cursor?: string; limit?: number } = {},
    signal?: AbortSignal,
  ): Promise<wire.MessagePage> {
    return this.#page(thread_id, "messages", page, signal);
  }

  /** A page of runs, newest first. */
  runs(
    thread_id: string,
    page: { cursor?: string; limit?: number } = {},
    signal?: AbortSignal,
  ): Promise<wire.RunPage> {
    return this.#page(thread_id, "runs", page, signal);
  }

  /** A token that reads this thread, its runs (later ones too) and nothing else. */
  createReadToken(thread_id: string, wanted: Pick<ReadToken, "ttl_s"> = {}): Promise<wire.NewToken> {
    return this.#transport.json(`${threadPath(thread_id)}/tokens`, { method: "POST", body: wanted });
  }

  #page<T>(thread_id: string, of: string, query: Query, signal?: AbortSignal): Promise<T> {
    return this.#transport.json(`${threadPath(thread_id)}/${of}`, { query, signal });
  }
}
