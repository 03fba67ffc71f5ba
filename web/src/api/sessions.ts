import type { components, Query } from "@runreel/client";
import { transport } from "./client";

type Schemas = components["schemas"];

/** A conversation in a chat of a channel. */
export type Session = Schemas["Session"];
/** A conversation in a file of the server. */
export type Saved = Schemas["Saved"];

/** A line of a session's log. */
export interface Line {
  role: string;
  content: unknown;
  ts: string;
  channel: string;
  user_id: string | null;
}

/** The file of a saved session. */
export interface SavedFile extends Saved {
  thread: {
    messages: { role?: string; type?: string; content?: unknown }[];
    metadata?: Record<string, unknown>;
  };
}

const path = "/api/sessions";
const savedPath = "/api/saved-sessions";
const one = (base: string, id: string) => `${base}/${encodeURIComponent(id)}`;
const page_sessions = 50;

export const sessions = {
  list: (filter: Query, signal: AbortSignal) =>
    transport.json<Schemas["SessionList"]>(path, { query: { limit: page_sessions, ...filter }, signal }),

  get: (session_id: string, signal: AbortSignal) =>
    transport.json<Session>(one(path, session_id), { signal }),

  end: (session_id: string) => transport.json<Session>(`${one(path, session_id)}/end`, { method: "POST" }),

  /** The session's log, one message per line. */
  async log(session_id: string, signal: AbortSignal): Promise<Line[]> {
    const headers = { accept: "application/x-ndjson" };
    const response = await transport.call(`${one(path, session_id)}/log.jsonl`, { headers, signal });
    const lines = (await response.text()).split("\n").filter((line) => line !== "");
    return lines.map((line) => JSON.parse(line) as Line);
  },
};

export const savedSessions = {
  list: (cursor: string | null, signal: AbortSignal) =>
    transport.json<Schemas["SavedList"]>(savedPath, { query: { limit: page_sessions, cursor }, signal }),

  get: (name: string, signal: AbortSignal) => transport.json<SavedFile>(one(savedPath, name), { signal }),

  save: (name: string, thread_id: string, description: string) =>
    transport.json<Saved>(savedPath, {
      method: "POST",
      body: { name, thread_id, ...(description !== "" && { description }) },
    }),

  /** Restores it to a thread; to a new one if `thread_id` is null. */
  restore: (name: string, thread_id: string | null) =>
    transport.json<Schemas["RestoredThread"]>(`${one(savedPath, name)}/restore`, {
      method: "POST",
      body: thread_id === null ? {} : { thread_id },
    }),

  delete: (name: string) => transport.call(one(savedPath, name), { method: "DELETE" }),
};
