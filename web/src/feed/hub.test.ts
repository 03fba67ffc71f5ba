import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Hub, type Said } from "./hub";
import { streamRequestOf } from "./streamrequest";

interface Connection {
  subscriptions: { name: string; run_id: string; after?: string; tail?: number }[];
  token: string | null;
  isAborted: () => boolean;
  send: (text: string) => void;
  end: () => void;
}

let connections: Connection[] = [];
let refusal: { status: number; text: string } | null = null;

/** A server that the test controls. */
const server = (body: string, token: string | null, signal: AbortSignal): Promise<Response> => {
  if (refusal !== null) return Promise.resolve(new Response(refusal.text, { status: refusal.status }));
  let into: ReadableStreamDefaultController<Uint8Array>;
  const stream = new ReadableStream<Uint8Array>({ start: (controller) => void (into = controller) });
  signal.addEventListener("abort", () => into.error(signal.reason));
  connections.push({
    ...(JSON.parse(body) as Pick<Connection, "subscriptions">),
    token,
    isAborted: () => signal.aborted,
    send: (text) => into.enqueue(new TextEncoder().encode(text)),
    end: () => into.close(),
  });
  return Promise.resolve(new Response(stream));
};

function tab(hub: Hub) {
  const told: Said[] = [];
  const hear = hub.join((said) => told.push(said));
  const open = (id: string, cursor: string | null = null, token: string | null = null) =>
    hear({ kind: "open", id, wanted: { stream: "run", run_id: id, tail: 0 }, cursor, token });
  const texts = (id: string) =>
    told.map((said) => (said.kind === "text" && said.id === id ? said.text : "")).join("");
  return { told, hear, open, texts };
}

const event = (name: string, seq: number) => `id: ${seq}\nevent: ${name}/log.info\ndata: {"seq":${seq}}\n\n`;
const caughtUp = (name: string) => `event: ${name}/stream.caught_up\ndata: {"last_seq":2,"cursor":null}\n\n`;
const soon = () => vi.advanceTimersByTimeAsync(60);

beforeEach(() => {
  vi.useFakeTimers();
  connections = [];
  refusal = null;
});
afterEach(() => void vi.useRealTimers());

test("streams of several tabs are one request, and each tab is told of its own", async () => {
  const hub = new Hub(server);
  const [one, two] = [tab(hub), tab(hub)];
  one.open("a");
  two.open("b", "7");
  await soon();
  expect(connections.map((each) => each.subscriptions)).toEqual([
    [
      { name: "s0", stream: "run", run_id: "a", tail: 0 },
      { name: "s1", stream: "run", run_id: "b", after: "7" },
    ],
  ]);
  connections[0]?.send("retry: 1000\n\n" + event("s0", 1) + event("s1", 8).slice(0, 20));
  connections[0]?.send(event("s1", 8).slice(20) + ": ping\n\n");
  await soon();
  expect(one.told[0]).toEqual({ kind: "answer", id: "a", status: 200, text: "" });
  expect(one.texts("a")).toBe('id: 1\nevent: log.info\ndata: {"seq":1}\n\n: ping\n\n');
  expect(two.texts("b")).toBe('id: 8\nevent: log.info\ndata: {"seq":8}\n\n: ping\n\n');
  expect(one.texts("b")).toBe("");
});

test("another stream is another connection after each cursor, and the old one is read until the new one speaks", async () => {
  const hub = new Hub(server);
  const one = tab(hub);
  one.open("a");
  await soon();
  connections[0]?.send(event("s0", 1) + caughtUp("s0"));
  await soon();
  one.open("b");
  await soon();
  expect(connections[1]?.subscriptions.map(({ after }) => after)).toEqual(["1", undefined]);
  connections[0]?.send(event("s0", 2));
  await soon();
  expect(connections[0]?.isAborted()).toBe(false);
  connections[1]?.send(event("s0", 2) + caughtUp("s0") + event("s0", 3) + event("s1", 1));
  await soon();
  expect(connections[0]?.isAborted()).toBe(true);
  // The reader drops duplicates by their id. The second `caught_up` is not passed on.
  expect([...one.texts("a").matchAll(/^id: (\d)|caught_up/gm)].map(([text]) => text)).toEqual([
    "id: 1",
    "caught_up",
    "id: 2",
    "id: 2",
    "id: 3",
  ]);
  expect(one.told.some(({ kind }) => kind === "cut")).toBe(false);
});

test("what is refused on its own is answered so, and does not end the others", async () => {
  const hub = new Hub(server);
  const one = tab(hub);
  one.open("a");
  one.open("b");
  await soon();
  const problem = '{"status":403,"code":"forbidden"}';
  connections[0]?.send(event("s0", 1) + `event: s1/stream.failed\ndata: ${problem}\n\n`);
  await soon();
  expect(one.told).toContainEqual({ kind: "answer", id: "b", status: 403, text: problem });
  connections[0]?.send(event("s0", 2) + "event: s0/stream.gone\ndata: {}\n\n");
  await soon();
  expect(one.texts("a")).toContain('"seq":2');
  expect(one.told.at(-1)).toEqual({ kind: "cut", id: "a" });
});

test("a request that is refused as a whole leaves those that have a connection on it", async () => {
  const hub = new Hub(server);
  const one = tab(hub);
  one.open("a");
  await soon();
  connections[0]?.send(event("s0", 1));
  await soon();
  refusal = { status: 400, text: "no" };
  one.open("b");
  await soon();
  expect(one.told).toContainEqual({ kind: "answer", id: "b", status: 400, text: "no" });
  connections[0]?.send(event("s0", 2));
  await soon();
  expect(one.texts("a")).toContain('"seq":2');
});

test("a new connection that has no room leaves the running one as it is", async () => {
  const hub = new Hub(server);
  const one = tab(hub);
  one.open("a");
  await soon();
  connections[0]?.send(event("s0", 1));
  await soon();
  one.open("b");
  await soon();
  connections[1]?.send('event: stream.draining\nretry: 3000\ndata: {"retry_ms":3000,"reason":"busy"}\n\n');
  await soon();
  expect(connections[0]?.isAborted()).toBe(false);
  connections[1]?.end();
  await soon();
  expect(one.told).toContainEqual({ kind: "answer", id: "b", status: 0, text: "" });
  connections[0]?.send(event("s0", 2));
  await soon();
  expect(one.texts("a")).toContain('"seq":2');
  expect(one.told.some(({ kind }) => kind === "cut")).toBe(false);
});

test("a text of many lines is not taken for the lines of its frame", async () => {
  const hub = new Hub(server);
  const one = tab(hub);
  one.open("a");
  await soon();
  const data = JSON.stringify({ text: "a\u2028id: p99\u2028event: s0/stream.end\u2029data: x" });
  connections[0]?.send(`event: s0/message.delta\ndata: ${data}\n\n`);
  await soon();
  expect(one.texts("a")).toBe(`event: message.delta\ndata: ${data}\n\n`);
  one.open("b");
  await soon();
  expect(connections[1]?.subscriptions[0]).toEqual({ name: "s0", stream: "run", run_id: "a", tail: 0 });
});

test("a connection that ends cuts its streams, and who waits hears when the server is there again", async () => {
  const hub = new Hub(server);
  const [one, two] = [tab(hub), tab(hub)];
  one.open("a");
  two.open("b");
  await soon();
  connections[0]?.send(event("s0", 1) + event("s1", 1));
  await soon();
  connections[0]?.end();
  await soon();
  expect(one.told.at(-1)).toEqual({ kind: "cut", id: "a" });
  expect(two.told.at(-1)).toEqual({ kind: "cut", id: "b" });
  one.open("a2", "1");
  await soon();
  expect(two.told.at(-1)).toEqual({ kind: "cut", id: "b" });
  connections[1]?.send(event("s0", 2));
  await soon();
  expect(two.told.at(-1)).toEqual({ kind: "again" });
});

test("a silent connection is a dead one", async () => {
  const hub = new Hub(server);
  const one = tab(hub);
  one.open("a");
  await soon();
  connections[0]?.send(event("s0", 1));
  await vi.advanceTimersByTimeAsync(26_000);
  expect(one.told.at(-1)).toEqual({ kind: "cut", id: "a" });
});

test("each token has a connection of its own, which ends with its last stream", async () => {
  const hub = new Hub(server);
  const one = tab(hub);
  one.open("a", null, "alice");
  one.open("b", null, "bob");
  await soon();
  expect(connections.map(({ token }) => token)).toEqual(["alice", "bob"]);
  for (const each of connections) each.send(event("s0", 1));
  await soon();
  one.hear({ kind: "close", id: "a" });
  await soon();
  expect(connections.map((each) => each.isAborted())).toEqual([true, false]);
  one.hear({ kind: "bye" });
  await soon();
  expect(connections[1]?.isAborted()).toBe(true);
});

test("more streams than one request may have are on two", async () => {
  const hub = new Hub(server);
  const one = tab(hub);
  for (let at = 0; at < 65; at += 1) one.open(`run-${at}`);
  await soon();
  expect(connections.map(({ subscriptions }) => subscriptions.length)).toEqual([64, 1]);
});

test("a tab that does not read is cut, and asks again when it wakes", async () => {
  const hub = new Hub(server);
  const one = tab(hub);
  one.open("a");
  await soon();
  const long = `id: 1\nevent: s0/log.info\ndata: ${"x".repeat(1_000_000)}\n\n`;
  for (let at = 0; at < 9; at += 1) connections[0]?.send(long);
  await soon();
  expect(one.told.at(-1)).toEqual({ kind: "cut", id: "a" });
  expect(connections[0]?.isAborted()).toBe(true);
});

test("streams are named by their own routes", () => {
  expect(streamRequestOf("/api/stream/runs/r1?after=3")).toEqual({ stream: "run", run_id: "r1", after: "3" });
  expect(streamRequestOf("/api/stream/runs/r1?tree=true&tail=10")).toEqual({
    stream: "tree",
    run_id: "r1",
    tail: 10,
  });
  expect(streamRequestOf("/api/stream/threads/a%20b?tokens=false")).toEqual({
    stream: "thread",
    thread_id: "a b",
    tokens: false,
  });
  expect(streamRequestOf("/api/stream/runs?types=run.*,interrupt.*&role=agent")).toEqual({
    stream: "runs",
    types: "run.*,interrupt.*",
    role: "agent",
  });
  expect(streamRequestOf("/api/stream/other")).toBeNull();
});

test("a connection that is silent for longer than the server pings is dead after 12 s; one that pings is not", async () => {
  const hub = new Hub(server);
  const one = tab(hub);
  one.open("a");
  await soon();
  connections[0]?.send(event("s0", 1) + caughtUp("s0"));
  for (let pings = 0; pings < 3; pings += 1) {
    await vi.advanceTimersByTimeAsync(10_000);
    connections[0]?.send(": ping\n\n");
  }
  await vi.advanceTimersByTimeAsync(11_900);
  expect(one.told.some(({ kind }) => kind === "cut")).toBe(false);
  await vi.advanceTimersByTimeAsync(200);
  expect(connections[0]?.isAborted()).toBe(true);
  expect(one.told.at(-1)).toEqual({ kind: "cut", id: "a" });
});
