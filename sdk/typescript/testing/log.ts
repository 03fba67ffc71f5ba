import { setTimeout as rest } from "node:timers/promises";
import {
  Client,
  isEvent,
  type NewEvent,
  type RunEvent,
  RunreelError,
  type StreamEvent,
} from "@runreel/client";

/** How long a test waits for anything, milliseconds: only a hang is worth a failure. */
export const patience_ms = 60_000;

/** The whole log of a run, page by page: what every reader must have got. */
export async function logOf(client: Client, run_id: string): Promise<RunEvent[]> {
  const events: RunEvent[] = [];
  for (let after = "0"; ;) {
    const page = await client.runs.events(run_id, { after, limit: 1000 });
    events.push(...page.events);
    if (!page.has_more) return events;
    after = page.last_id as string;
  }
}

/** A run with so many events after its first two; the last one ends it. */
export async function finishedRun(client: Client, count: number): Promise<string> {
  const { run_id } = await unlessBusy(() => client.runs.create({ title: "finished" }));
  const events: NewEvent[] = Array.from({ length: count }, (_, at) => ({
    type: "log.info",
    payload: { message: `event ${at}` },
  }));
  const end: NewEvent = { type: "run.completed", payload: { output: count } };
  await unlessBusy(() => client.runs.emit(run_id, [...events, end]));
  return run_id;
}

/** Sends a request again while the server is busy, of which nothing was stored. */
async function unlessBusy<T>(request: () => Promise<T>): Promise<T> {
  for (const deadline = Date.now() + patience_ms; ; await rest(500)) {
    try {
      return await request();
    } catch (error) {
      if (!(error instanceof RunreelError && error.code === "busy") || Date.now() > deadline) throw error;
    }
  }
}

export const durable = (events: StreamEvent[]): RunEvent[] => events.filter(isEvent);

/** Reads to the end. */
export async function collect<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const events: T[] = [];
  for await (const event of stream) events.push(event);
  return events;
}

/** Waits until it holds; says what it waited for. */
export async function until(
  what: string,
  holds: () => boolean | Promise<boolean>,
  within_ms = patience_ms,
): Promise<void> {
  const deadline = Date.now() + within_ms;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`);
    // Of the real clock, also where a test has a faked one.
    await rest(10);
  }
}

/** Streams that are open on the server now. */
export async function streamsOpen(url: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const sum = [...text.matchAll(/^runreel_streams_open(?:\{[^}]*\})? (\d+)/gm)].map((match) =>
    Number(match[1]),
  );
  return sum.reduce((all, each) => all + each, 0);
}
