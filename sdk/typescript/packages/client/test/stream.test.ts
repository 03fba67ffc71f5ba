import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { RunreelError } from "../src/errors.js";
import { isEvent, type StreamEvent } from "../src/events.js";
import { FeedOrder, RunOrder } from "../src/order.js";
import type { Connection } from "../src/status.js";
import { EventStream, holes_max, idle_ms } from "../src/stream.js";
import { event, eventFrame, frame } from "./frames.js";

type Answer = (request: { cursor: string | null; signal: AbortSignal }) => Response;

const stream = (chunks: string[], end: "close" | "open" | "break" = "close"): Response => {
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(encoder.encode(chunk));
      if (end === "close") controller.close();
    },
    pull(controller) {
      if (end === "break") controller.error(new Error("reset"));
    },
  });
  return new Response(body, { headers: { "content-type": "text/event-stream" } });
};

const problem = (status: number, headers: Record<string, string> = {}): Response =>
  new Response(JSON.stringify({ title: "No", code: "no", detail: "because" }), {
    status,
    headers: { "content-type": "application/problem+json", ...headers },
  });

const events = (from: number, to: number): string[] =>
  Array.from({ length: Math.max(0, to - from + 1) }, (_, at) => eventFrame(event(from + at, "log.info")));

const end = (last_seq: number) => frame("stream.end", { status: "completed", last_seq });

/** Reads a stream over scripted answers, one per connection; the last one is repeated. */
function follow(answers: Answer[], order = new RunOrder() as RunOrder | FeedOrder) {
  const cursors: (string | null)[] = [];
  const seqs: number[] = [];
  const messages: StreamEvent[] = [];
  const connections: Connection[] = [];
  const stream = new EventStream({
    order,
    random: () => 0,
    open: async (_, init) => {
      const cursor = new Headers(init.headers).get("last-event-id");
      const signal = init.signal as AbortSignal;
      cursors.push(cursor);
      const answer = answers[Math.min(cursors.length, answers.length) - 1] as Answer;
      return abortable(answer({ cursor, signal }), signal);
    },
  });
  stream.status.subscribe(() => connections.push(stream.status.getSnapshot()));
  const read = async () => {
    for await (const each of stream) {
      messages.push(each);
      if (isEvent(each)) seqs.push(each.seq);
    }
  };
  const result = read().then(
    () => null,
    (error: unknown) => error,
  );
  const states = () => connections.map((connection) => connection.state);
  return { stream, cursors, seqs, messages, connections, states, result };
}

/** The real `fetch` breaks the body when its signal is aborted. */
function abortable(response: Response, signal: AbortSignal): Response {
  if (response.body === null) return response;
  const reader = response.body.getReader();
  const body = new ReadableStream<Uint8Array>({
    async start(controller) {
      signal.addEventListener("abort", () => controller.error(new Error("aborted")));
    },
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (signal.aborted) return;
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        if (!signal.aborted) controller.error(error);
      }
    },
  });
  return new Response(body, { status: response.status, headers: response.headers });
}

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const settle = async (ms = 0) => {
  await vi.advanceTimersByTimeAsync(ms);
};

describe("following a stream", () => {
  test("it ends on stream.end and asks no more", async () => {
    const run = follow([() => stream([...events(1, 3), end(3)])]);
    await settle(60_000);
    expect(run.seqs).toEqual([1, 2, 3]);
    expect(run.cursors).toEqual([null]);
    expect(run.states().at(-1)).toBe("ended");
  });

  test("it ends on 204", async () => {
    const run = follow([() => new Response(null, { status: 204 })]);
    await settle(60_000);
    expect(run.cursors).toEqual([null]);
    expect(run.states().at(-1)).toBe("ended");
  });

  test("a clean end of the body without stream.end is only a cut: it resumes after the last event", async () => {
    const run = follow([() => stream(events(1, 2)), () => stream([...events(3, 4), end(4)])]);
    await settle(2_000);
    expect(run.cursors).toEqual([null, "2"]);
    expect(run.seqs).toEqual([1, 2, 3, 4]);
  });

  test("after a set-back of the log it resumes with the id as it was given, not with the seq", async () => {
    const tagged = frame("log.info", event(3, "log.info"), "3.9f86d081");
    const order = new RunOrder();
    const run = follow([() => stream([...events(1, 2), tagged]), () => stream([end(3)])], order);
    await settle(2_000);
    expect(run.cursors).toEqual([null, "3.9f86d081"]);
    expect([1, 2, 3, 4].map((seq) => order.idOf(seq))).toEqual(["1", "2", "3.9f86d081", "4.9f86d081"]);
  });

  test("it is live once the server says that the replay is over", async () => {
    const run = follow([() => stream([...events(1, 1), frame("stream.caught_up", { last_seq: 1 })], "open")]);
    await settle();
    expect(run.states().at(-1)).toBe("live");
    run.stream.close();
  });

  test("the server's retry time is the base of the back-off", async () => {
    const run = follow([() => stream(["retry: 4000\n\n", ...events(1, 1)])]);
    await settle();
    const waiting = run.connections.find((connection) => connection.state === "reconnecting");
    // The random part is 0 here, so this is the floor.
    expect(waiting).toMatchObject({ attempt: 1, retryAt: Date.now() + 250 });
    run.stream.close();
  });

  test.each([401, 403, 404, 409])("%i is final and is told with the server's words", async (status) => {
    const run = follow([() => problem(status)]);
    await settle(60_000);
    expect(run.cursors).toHaveLength(1);
    const error = await run.result;
    expect(error).toBeInstanceOf(RunreelError);
    expect(error).toMatchObject({ code: "no", status, message: "because" });
    expect(run.connections.at(-1)).toEqual({ state: "failed", error, gap: null });
  });

  test("503 is tried again, not before Retry-After", async () => {
    const run = follow([() => problem(503, { "retry-after": "7" }), () => stream([end(0)])]);
    await settle(6_900);
    expect(run.cursors).toHaveLength(1);
    await settle(200);
    expect(run.cursors).toHaveLength(2);
  });

  test("a page that something in between answered is not taken for the stream", async () => {
    const html = () => new Response("<h1>Sign in</h1>", { headers: { "content-type": "text/html" } });
    const run = follow([html, () => stream([...events(1, 1), end(1)])]);
    await settle(1_000);
    expect(run.seqs).toEqual([1]);
  });

  test("silence longer than two pings is a dead peer", async () => {
    const run = follow([() => stream(events(1, 2), "open"), () => stream([...events(3, 3), end(3)])]);
    await settle(idle_ms - 1);
    expect(run.cursors).toHaveLength(1);
    await settle(1_000);
    expect(run.seqs).toEqual([1, 2, 3]);
    expect(run.cursors).toEqual([null, "2"]);
  });

  test("a paused stream gives its connection back and resumes at its cursor", async () => {
    const run = follow([() => stream(events(1, 2), "open"), () => stream([...events(3, 3), end(3)])]);
    await settle();
    run.stream.pause();
    await settle(60_000);
    expect(run.states().at(-1)).toBe("paused");
    expect(run.cursors).toHaveLength(1);
    run.stream.resume();
    await settle(1_000);
    expect(run.cursors).toEqual([null, "2"]);
    expect(run.seqs).toEqual([1, 2, 3]);
  });

  test("retry now does not wait for the back-off", async () => {
    const run = follow([() => problem(503, { "retry-after": "600" }), () => stream([end(0)])]);
    await settle(10);
    run.stream.retryNow();
    await settle(1);
    expect(run.states().at(-1)).toBe("ended");
  });

  test("what retention removed is told, and what follows is taken", async () => {
    const gap = frame("stream.gap", { requested_after: 0, first_seq: 7 });
    const run = follow([() => stream([gap, ...events(7, 8), end(8)])]);
    await settle();
    expect(run.messages[0]).toEqual({ type: "stream.gap", requested_after: 0, first_seq: 7 });
    expect(run.connections.at(-1)?.gap).toMatchObject({ first_seq: 7 });
    expect(run.seqs).toEqual([7, 8]);
  });

  test("a hole is read again, and told as a gap when the server has nothing else", async () => {
    const holed = () => stream([...events(1, 2), ...events(5, 5), end(5)]);
    const run = follow([holed]);
    await settle(60_000);
    expect(run.cursors).toEqual([null, ...Array<string>(holes_max - 1).fill("2")]);
    expect(run.messages.filter((message) => message.type === "stream.gap")).toEqual([
      { type: "stream.gap", requested_after: 2, first_seq: 5 },
    ]);
    expect(run.seqs).toEqual([1, 2, 5]);
  });

  test.each(["stream.draining", "stream.reset"])("after %s it comes back with its cursor", async (away) => {
    const run = follow([
      () => stream([...events(1, 1), frame(away, { retry_ms: 900 })]),
      () => stream([end(1)]),
    ]);
    await settle(1_000);
    expect(run.messages[1]).toEqual({ type: away, retry_ms: 900 });
    expect(run.cursors).toEqual([null, "1"]);
  });

  test("a byte order mark at the beginning is no part of the first line", async () => {
    const run = follow([() => stream(["\uFEFF", ...events(1, 1), end(1)])]);
    await settle();
    expect(run.seqs).toEqual([1]);
  });

  test("a source of tokens that never answers is not waited for longer than a silent server", async () => {
    const opened: number[] = [];
    const open = () => {
      opened.push(Date.now());
      return new Promise<Response>(() => undefined);
    };
    const waiting = new EventStream({ order: new RunOrder(), random: () => 0, open });
    const read = waiting[Symbol.asyncIterator]().next();
    await settle(idle_ms + 250);
    expect(opened).toHaveLength(2);
    waiting.close();
    expect(await read).toEqual({ done: true, value: undefined });
  });

  test("a control frame of a later version is skipped", async () => {
    const run = follow([() => stream([frame("stream.unheard", {}), ...events(1, 1), end(1)])]);
    await settle();
    expect(run.seqs).toEqual([1]);
  });

  test("a feed resumes with its opaque cursor and takes no seq of a run twice", async () => {
    const one = frame("log.info", event(9, "log.info"), "pAAA");
    const two = frame("log.info", event(10, "log.info"), "pBBB");
    const run = follow([() => stream([one]), () => stream([one, two], "open")], new FeedOrder());
    await settle(1_000);
    expect(run.cursors).toEqual([null, "pAAA"]);
    expect(run.seqs).toEqual([9, 10]);
    run.stream.close();
  });

  test("a feed without events still resumes where its replay stood", async () => {
    const caughtUp = frame("stream.caught_up", { cursor: "pZZZ" });
    const run = follow([() => stream([caughtUp]), () => stream([], "open")], new FeedOrder());
    await settle(1_000);
    expect(run.cursors).toEqual([null, "pZZZ"]);
    run.stream.close();
  });
});

/** What a connection may do to the frames that the server sends after the cursor. */
const fault = fc.record({
  back: fc.nat(5),
  take: fc.nat(12),
  twice: fc.array(fc.nat(11), { maxLength: 4 }),
  swap: fc.array(fc.nat(10), { maxLength: 3 }),
  chunk: fc.integer({ min: 1, max: 90 }),
  broken: fc.boolean(),
});

const slices = (text: string, size: number): string[] => text.match(new RegExp(`[^]{1,${size}}`, "g")) ?? [];

describe("whatever happens to the frames between server and page", () => {
  test("each seq is handed on once and in order", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 40 }),
        fc.array(fault, { maxLength: 12 }),
        async (total, faults) => {
          const faulty: Answer[] = faults.map((each) => ({ cursor }) => {
            const first = Math.max(1, Number(cursor ?? 0) + 1 - each.back);
            const frames = events(first, Math.min(total, first + each.take));
            for (const at of each.twice) if (frames[at]) frames.splice(at, 0, frames[at]);
            for (const at of each.swap) {
              const [a, b] = [frames[at], frames[at + 1]];
              if (a && b) frames.splice(at, 2, b, a);
            }
            const text = frames.join("");
            // A cut falls anywhere, also inside a frame.
            return stream(
              slices(text.slice(0, text.length - (each.take % 7)), each.chunk),
              each.broken ? "break" : "close",
            );
          });
          const honest: Answer = ({ cursor }) =>
            stream([...events(Number(cursor ?? 0) + 1, total), end(total)]);
          const oneMore: Answer = ({ cursor }) => {
            const next = Number(cursor ?? 0) + 1;
            return stream(events(next, Math.min(next, total)));
          };
          // Between two faults the log moves: a hole that stays for ever is another test's.
          const run = follow([...faulty.flatMap((each) => [each, oneMore]), honest]);
          await settle(600_000);
          expect(run.states().at(-1)).toBe("ended");
          expect(run.seqs).toEqual(Array.from({ length: total }, (_, at) => at + 1));
          expect(run.messages.some((message) => message.type === "stream.gap")).toBe(false);
        },
      ),
      { numRuns: 100 },
    );
  });
});
