/** What users of comparable packages complain of, each against the real server and over real sockets. */

import { Client, isDelta, isEvent, RunreelError, type Connection, type StreamEvent } from "@runreel/client";
import { Texts } from "@runreel/client/fold";
import { afterEach, expect, inject, test, vi } from "vitest";
import { Wire } from "../../../../../tests/browser/wire.ts";
import { collect, durable, finishedRun, logOf, until } from "../../../testing/log.ts";
import { Proxy, type Way } from "../../../testing/proxy.ts";

const url = inject("url");
const direct = new Client({ url });
const closing: { close: () => Promise<void> }[] = [];

async function behind(way: Parameters<typeof Proxy.to>[1]): Promise<{ proxy: Proxy; client: Client }> {
  const proxy = await Proxy.to(url, way);
  closing.push(proxy);
  return { proxy, client: new Client({ url: proxy.url }) };
}

async function wired(): Promise<{ wire: Wire; client: Client }> {
  const wire = await Wire.to(() => Number(new URL(url).port));
  closing.push(wire);
  return { wire, client: new Client({ url: wire.url }) };
}

afterEach(async () => {
  vi.restoreAllMocks();
  vi.useRealTimers();
  for (const each of closing.splice(0)) await each.close();
});

/** Every wait is the shortest one. */
const impatient = () => vi.spyOn(Math, "random").mockReturnValue(0);

const frames = (text: string) => text.split("\n\n").filter((frame) => /^id: /m.test(frame));

/** Ends each answer cleanly once so many frames have passed. */
const endingAfter = (count: number): Way => ({
  chunk(data, to, passed) {
    const ends = [...passed.text.matchAll(/\n\n/g)];
    const last = ends[count];
    const before = passed.text.length - data.length;
    if (last === undefined) return void to.write(data);
    to.end(data.subarray(0, Math.max(0, last.index + 2 - before)));
  },
});

test("a server that stays away for many tries is told in the status, and taken up when it is back", async () => {
  impatient();
  const { wire, client } = await wired();
  const { run_id } = await direct.runs.create();
  const stream = client.stream(run_id);
  const states = new Set<string>();
  const waiting: Connection[] = [];
  stream.status.subscribe(() => {
    const now = stream.status.getSnapshot();
    states.add(now.state);
    if (now.state === "reconnecting") waiting.push(now);
    if (waiting.length === 8) wire.heal();
  });
  wire.cut();
  const read = collect(stream);
  await until("it is live", () => stream.status.getSnapshot().state === "live");
  const error = { code: "unreachable", status: 0, message: "The server cannot be reached" };
  expect(waiting[7]).toMatchObject({ attempt: 8, error });
  await direct.runs.emit(run_id, [{ type: "run.completed" }]);
  expect(durable(await read).at(-1)?.type).toBe("run.completed");
  expect([...states]).toEqual(["connecting", "reconnecting", "catching-up", "live", "ended"]);
});

test("a peer that falls silent without closing is left after 25 seconds, and nothing is missed", async () => {
  impatient();
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  const { proxy, client } = await behind((_, count) =>
    count === 1 ? { chunk: holdAfter(3), staysOpen: true } : {},
  );
  const { run_id } = await direct.runs.create();
  const stream = client.stream(run_id);
  const read = collect(stream);
  await until("it is live", () => stream.status.getSnapshot().state === "live");
  await direct.runs.emit(run_id, [{ type: "log.info" }, { type: "run.completed" }]);
  await until("the proxy has swallowed the end", () => proxy.passed[0]?.text.includes("stream.end") ?? false);
  vi.advanceTimersByTime(24_999);
  expect(stream.status.getSnapshot().state).toBe("live");
  vi.advanceTimersByTime(1);
  await until("it waits for the next try", () => stream.status.getSnapshot().state === "reconnecting");
  vi.advanceTimersByTime(250);
  expect(durable(await read).map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
});

test("a refusal is thrown to the reader with what to do about it, and not repeated", async () => {
  const { proxy, client } = await behind(() => ({}));
  const stream = client.stream("01a20078-18af-7545-b69e-87c0ab9f3405");
  const error = await collect(stream).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(RunreelError);
  expect(error).toMatchObject({ code: "not_found", status: 404 });
  expect(stream.status.getSnapshot()).toMatchObject({ state: "failed", error });
  expect(proxy.passed).toHaveLength(1);
});

test("a cursor ahead of the log is told and not looped on", async () => {
  const run_id = await finishedRun(direct, 1);
  const { proxy, client } = await behind(() => ({}));
  const stream = client.stream(run_id, { after: 4_000 });
  await expect(collect(stream)).rejects.toMatchObject({ code: "cursor_ahead", status: 409 });
  expect(proxy.passed).toHaveLength(1);
});

test("a clean end of the body before the terminal event is not the end, however often it comes", async () => {
  impatient();
  const run_id = await finishedRun(direct, 20);
  const { proxy, client } = await behind(() => endingAfter(3));
  const stream = client.stream(run_id);
  const ended: number[] = [];
  stream.status.subscribe(() => {
    if (stream.status.getSnapshot().state === "ended") ended.push(proxy.passed.length);
  });
  const events = durable(await collect(stream));
  expect(events).toEqual(await logOf(direct, run_id));
  expect(proxy.passed.length).toBeGreaterThan(5);
  expect(ended).toEqual([proxy.passed.length]);
});

test("what completes a run is its own event, not a gateway that gave up on an idle stream", async () => {
  impatient();
  const page = "<h1>504 Gateway Time-out</h1>";
  const { proxy, client } = await behind((_, count) => {
    if (count % 3 === 1) return endingAfter(1);
    if (count % 3 === 2)
      return { answer: (to) => to.writeHead(504, { "content-type": "text/html" }).end(page) };
    return {};
  });
  const { run_id } = await direct.runs.create();
  const stream = client.stream(run_id);
  let hasCompleted = false;
  const read = collect(stream).then((events) => {
    hasCompleted = true;
    return events;
  });
  await until("it is live behind the gateway", () => stream.status.getSnapshot().state === "live");
  expect(proxy.passed.length).toBe(3);
  expect(hasCompleted).toBe(false);
  await direct.runs.emit(run_id, [{ type: "run.completed" }]);
  expect(durable(await read).map(({ type }) => type)).toEqual([
    "run.created",
    "run.started",
    "run.completed",
  ]);
});

test("who comes back to a message that went on meanwhile sees what is so, not what was", async () => {
  impatient();
  const { wire, client } = await wired();
  const { run_id } = await direct.runs.create();
  const texts = new Texts();
  const stream = client.stream(run_id);
  const read = (async () => {
    for await (const event of stream) {
      if (isEvent(event)) texts.event(event);
      else if (event.type === "message.snapshot") texts.snapshot(event);
      else if (isDelta(event)) texts.delta(event);
    }
  })();
  const say = (span_id: string, text: string) =>
    direct.runs.emit(run_id, [{ type: "message.delta", span_id, payload: { text } }]);
  const open = () => texts.open.get("m1")?.text;
  await until("it is live", () => stream.status.getSnapshot().state === "live");
  await say("m1", "I begin ");
  await until("the first words are here", () => open() === "I begin ");
  wire.cut();
  await say("m1", "and go on, ");
  wire.heal();
  await until("the rest is here", () => open() === "I begin and go on, ");
  await say("m1", "to the end.");
  await until("the end is here", () => open() === "I begin and go on, to the end.");
  const payload = { text: "I begin and go on, to the end." };
  await direct.runs.emit(run_id, [
    { type: "message.completed", span_id: "m1", payload },
    { type: "run.completed" },
  ]);
  await read;
  expect(texts.open.size).toBe(0);
  expect(texts.done).toMatchObject([{ text: payload.text, hole: false }]);
});

test("a reconnect asks for what is missing, not for the whole tape again", async () => {
  impatient();
  const run_id = await finishedRun(direct, 200);
  const { proxy, client } = await behind((_, count) => (count < 5 ? endingAfter(40) : {}));
  const events = durable(await collect(client.stream(run_id)));
  expect(events).toHaveLength(203);
  // The frames that reached the reader's side of the proxy: what was cut off in the proxy is sent once more.
  const cursors = proxy.passed.map(({ cursor }) => cursor);
  expect(cursors).toEqual([null, "40", "80", "120", "160"]);
  const first = proxy.passed.map(({ text }) => /id: (\d+)/.exec(text)?.[1]);
  expect(first).toEqual(["1", "41", "81", "121", "161"]);
});

test("a cursor is the event's place in the log, so any connection, filter and client may go on from it", async () => {
  const run_id = await finishedRun(direct, 10);
  const stream = direct.stream(run_id, { tail: 6 });
  const seqs: number[] = [];
  for await (const event of stream) {
    if (isEvent(event)) seqs.push(event.seq);
    if (seqs.length === 2) break;
  }
  expect(seqs).toEqual([8, 9]);
  expect(stream.lastEventId).toBe("9");
  expect(stream.status.getSnapshot().state).toBe("closed");
  const other = new Client({ url }).stream(run_id, { after: stream.lastEventId, types: ["log.*"] });
  expect(durable(await collect(other)).map(({ seq }) => seq)).toEqual([10, 11, 12]);
  expect(other.lastEventId).toBe("13");
});

test("a payload of any size reaches the reader: whole in its event, or as an artifact that the event names", async () => {
  const { run_id } = await direct.runs.create();
  const [fits, large] = ["f".repeat(60_000), "l".repeat(3_000_000)];
  await direct.runs.emit(run_id, [
    { type: "tool.completed", span_id: "a", payload: { result: fits } },
    { type: "tool.completed", span_id: "b", payload: { result: large } },
    { type: "run.completed" },
  ]);
  const results = [];
  for await (const event of direct.stream(run_id)) {
    if (event.type !== "tool.completed") continue;
    const pointer = event.payload.$artifact;
    if (pointer === undefined) results.push(event.payload.result);
    else
      results.push(
        (await direct.request<{ result: string }>(`/api/artifacts/${pointer.artifact_id}`)).result,
      );
  }
  expect(results.map((result) => String(result).length)).toEqual([60_000, 3_000_000]);
  expect(results).toEqual([fits, large]);
});

test("a connection that is reset in the middle of a chunk costs nothing but time", async () => {
  impatient();
  const run_id = await finishedRun(direct, 400);
  const { wire, client } = await wired();
  const events: StreamEvent[] = [];
  const stream = client.stream(run_id);
  let resets = 0;
  for await (const event of stream) {
    events.push(event);
    if (isEvent(event) && event.seq % 40 === 0 && resets < 10) {
      resets += 1;
      wire.cut();
      wire.heal();
    }
  }
  expect(resets).toBe(10);
  expect(durable(events)).toEqual(await logOf(direct, run_id));
});

test("after the end nothing is asked again, and who comes with the last cursor is told that it is over", async () => {
  const run_id = await finishedRun(direct, 3);
  const { proxy, client } = await behind(() => ({}));
  const stream = client.stream(run_id);
  await collect(stream);
  const again = client.stream(run_id, { after: stream.lastEventId });
  expect(await collect(again)).toEqual([]);
  expect(again.status.getSnapshot().state).toBe("ended");
  await expect(async () => {
    for await (const _ of stream) break;
  }).rejects.toThrow("can be read once");
  expect(proxy.passed.map(({ path }) => path)).toEqual(Array(2).fill(`/api/stream/runs/${run_id}`));
  expect(frames(proxy.passed[1]?.text ?? "")).toEqual([]);
});

/** Passes so many frames and swallows the rest, with the connection open. */
function holdAfter(count: number): NonNullable<Way["chunk"]> {
  return (data, to, passed) => {
    if ([...passed.text.matchAll(/\n\n/g)].length <= count + 1) to.write(data);
  };
}
