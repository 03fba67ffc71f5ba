/** `client.run()`: what it promises its host, against the real server. */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { Client, type ClientOptions, type RunEvent } from "@runreel/client";
import { afterEach, expect, inject, test } from "vitest";
import { Server } from "../../../../../tests/browser/server.ts";
import { Wire } from "../../../../../tests/browser/wire.ts";
import { collect, logOf, until } from "../../../testing/log.ts";
import { Proxy } from "../../../testing/proxy.ts";

const url = inject("url");
const direct = new Client({ url });
const closing: { close: () => Promise<void> }[] = [];

function telling(options: ClientOptions): { client: Client; errors: Error[] } {
  const errors: Error[] = [];
  return { client: new Client({ onError: (error) => errors.push(error), ...options }), errors };
}

async function behind(way: Parameters<typeof Proxy.to>[1] = () => ({})) {
  const proxy = await Proxy.to(url, way);
  closing.push(proxy);
  return { proxy, ...telling({ url: proxy.url }) };
}

afterEach(async () => {
  for (const each of closing.splice(0)) await each.close();
});

const typesOf = (events: RunEvent[]) => events.map(({ type }) => type);
const numbers = (events: RunEvent[]) =>
  events.filter(({ type }) => type === "custom.n").map(({ payload }) => (payload as { n: number }).n);
const upTo = (count: number) => Array.from({ length: count }, (_, at) => at);

test("a run is told in order and in batches, with spans inside of spans and a message as it is written", async () => {
  const { proxy, client, errors } = await behind();
  const run = client.run({
    title: "Nightly report",
    agent: "reporter",
    input: { day: "Monday" },
    tags: ["nightly"],
  });
  const step = run.step("plan");
  const tool = step.tool("search", { q: "runreel" });
  tool.complete("3 hits");
  step.complete({ hits: 3 });
  const message = run.message();
  for (const word of ["Three ", "hits, ", "no ", "misses."]) message.token(word);
  message.complete(undefined, { usage: { output_tokens: 4 } });
  run.log("info", "done", { files: 3 });
  expect(await run.complete({ hits: 3 })).toBe(true);
  expect(run.ended).toBe(true);
  const [stored, events] = [await direct.runs.get(run.run_id), await logOf(direct, run.run_id)];
  expect(stored).toMatchObject({
    title: "Nightly report",
    agent: "reporter",
    status: "completed",
    output: { hits: 3 },
  });
  expect(typesOf(events)).toEqual([
    ...["run.created", "run.started", "step.started", "tool.started", "tool.completed", "step.completed"],
    ...["message.completed", "log.info", "run.completed"],
  ]);
  expect(events[3]).toMatchObject({
    parent_span_id: step.span_id,
    payload: { name: "search", args: { q: "runreel" } },
  });
  expect(events[4]).toMatchObject({ span_id: tool.span_id, payload: { name: "search", result: "3 hits" } });
  expect(events[6]?.payload).toMatchObject({
    content: [{ type: "text", text: "Three hits, no misses." }],
    usage: { output_tokens: 4 },
  });
  // One that creates it and one for all of it.
  expect(proxy.passed.map(({ method, path }) => `${method} ${path}`)).toEqual([
    "POST /api/runs",
    `POST /api/runs/${run.run_id}/events`,
  ]);
  expect([errors, client.dropped, run.dropped]).toEqual([[], 0, 0]);
});

test("who follows sees each token while it is written", async () => {
  const { client } = telling({ url });
  const run = client.run({ title: "Tokens" });
  await run.flush();
  const stream = direct.stream(run.run_id);
  const read = collect(stream);
  await until("it is live", () => stream.status.getSnapshot().state === "live");
  const message = run.message();
  message.token("Hello, ");
  await run.flush();
  message.token("wörld");
  await run.flush();
  message.complete();
  await run.complete();
  const texts = (await read).flatMap((event) => {
    if (event.type === "message.snapshot") return [event.text];
    return event.type === "message.delta" ? [event.payload.text] : [];
  });
  expect(texts.join("")).toMatch(/Hello, wörld$/);
});

test("a server that is away costs its host nothing, and is told everything when it is back", async () => {
  const wire = await Wire.to(() => Number(new URL(url).port));
  closing.push(wire);
  const { client, errors } = telling({ url: wire.url });
  wire.cut();
  const run = client.run({ title: "Away" });
  for (const n of upTo(2_000)) run.emit("custom.n", { n });
  expect(await run.flush(100)).toBe(false);
  expect(errors).toMatchObject([{ code: "unreachable" }]);
  wire.heal();
  expect(await run.complete()).toBe(true);
  expect(numbers(await logOf(direct, run.run_id))).toEqual(upTo(2_000));
  expect(client.dropped).toBe(0);
});

test("an answer that is lost on its way is asked for again with the same ids, and nothing is stored twice", async () => {
  const { proxy, client } = await behind((_, count) => ({ isLost: count % 2 === 1 }));
  const run = client.run({ title: "Lost" });
  for (const n of upTo(1_200)) run.emit("custom.n", { n });
  expect(await run.complete()).toBe(true);
  expect(numbers(await logOf(direct, run.run_id))).toEqual(upTo(1_200));
  // The creation and three batches, each of them twice.
  expect(proxy.passed).toHaveLength(8);
  const bodies = proxy.passed.map(({ body }) => body);
  for (const at of [0, 2, 4, 6]) expect(bodies[at]).toBe(bodies[at + 1]);
});

test("an event that the server refuses is dropped, counted and told; the others are stored", async () => {
  const { client, errors } = telling({ url });
  const run = client.run({ title: "One of three" });
  run.emit("custom.n", { n: 0 });
  run.emit("No Type", { n: 1 });
  run.emit("custom.n", { n: 2 });
  await run.complete();
  expect(numbers(await logOf(direct, run.run_id))).toEqual([0, 2]);
  expect([run.dropped, client.dropped]).toEqual([1, 1]);
  expect(errors).toMatchObject([{ code: "invalid_event" }]);
});

test("the queue is bounded: what does not fit is counted, and the end of the run still fits", async () => {
  const wire = await Wire.to(() => Number(new URL(url).port));
  closing.push(wire);
  const { client, errors } = telling({ url: wire.url });
  wire.cut();
  const run = client.run({ title: "Full" });
  for (const n of upTo(10_500)) run.emit("custom.n", { n });
  const end = run.complete();
  expect(run.dropped).toBe(500);
  expect(errors.map(({ message }) => message)).toContain("events are dropped: the queue is full");
  wire.heal();
  await end;
  await until("all of it has landed", () => run.flush());
  const events = await logOf(direct, run.run_id);
  expect(numbers(events)).toEqual(upTo(10_000));
  expect(events.at(-1)?.type).toBe("run.completed");
});

test("anything may be a payload, and nothing throws", async () => {
  const { client, errors } = telling({ url });
  const run = client.run({ title: "Any\0\nthing", metadata: { big: 1n } as object as Record<string, never> });
  const cycle: Record<string, unknown> = { name: "cycle" };
  cycle["self"] = cycle;
  let deep: unknown = "bottom";
  for (let level = 0; level < 5_000; level += 1) deep = [deep];
  const trap = {
    get secret(): string {
      throw new Error("not to be read");
    },
  };
  const hostile = [
    cycle,
    deep,
    trap,
    12n,
    undefined,
    null,
    NaN,
    Symbol("s"),
    () => 1,
    "\uD800 \0",
    new Date(0),
  ];
  for (const value of hostile) run.emit("custom.any", value);
  for (const value of hostile) run.tool("any", value).fail(value);
  run.emit("custom.any", {
    when: new Date(0),
    set: new Set([1]),
    map: new Map([["a", 1]]),
    nan: NaN,
    gone: undefined,
  });
  run.emit("custom.any", { text: "x".repeat(5_000_000) });
  expect(await run.fail(new TypeError("that was it"))).toBe(true);
  const events = await logOf(direct, run.run_id);
  const payloads = events.filter(({ type }) => type === "custom.any").map(({ payload }) => payload);
  expect(payloads).toHaveLength(hostile.length + 2);
  expect(payloads.at(-2)).toEqual({ when: "1970-01-01T00:00:00.000Z", set: [1], map: [["a", 1]], nan: null });
  expect(payloads.at(-1)).toMatchObject({ $truncated: true });
  const run_failed = { status: "failed", error: { type: "TypeError", message: "that was it" } };
  expect(await direct.runs.get(run.run_id)).toMatchObject({ ...run_failed, title: "Any  thing" });
  expect([client.dropped, errors]).toEqual([0, []]);
});

test("a run that somebody else cancelled takes no more, and says so", async () => {
  const { client } = telling({ url });
  const run = client.run({ title: "Cancelled" });
  await run.flush();
  await direct.runs.cancel(run.run_id, "enough");
  run.emit("custom.n", { n: 0 });
  await run.flush();
  expect(run.ended).toBe(true);
  expect(run.dropped).toBe(1);
});

test("a child is created after its parent, and another process may go on with a run", async () => {
  const { client } = telling({ url });
  const parent = client.run({ title: "Parent", role: "supervisor" });
  const child = client.run({ title: "Child", role: "worker", parent });
  expect(await child.complete()).toBe(true);
  expect(await direct.runs.get(child.run_id)).toMatchObject({
    parent_run_id: parent.run_id,
    status: "completed",
  });
  expect(await new Client({ url }).attach(parent.run_id).complete("both")).toBe(true);
  expect(await direct.runs.get(parent.run_id)).toMatchObject({ status: "completed", output: "both" });
});

test("a lease is renewed while the program works on the run, and no longer", async () => {
  const { proxy, client } = await behind();
  const run = client.run({ title: "Leased", lease_ms: 300 });
  const beats = () => proxy.passed.filter(({ path }) => path.endsWith("/heartbeat")).length;
  await until("it was renewed five times", () => beats() >= 5);
  expect(await direct.runs.get(run.run_id)).toMatchObject({
    status: "running",
    stalled: false,
    lease_ms: 300,
  });
  await run.complete();
  const renewed = beats();
  await until("a run that nobody renews has stalled", async () => {
    const other = await direct.runs.getOrCreate("leased beside it", { lease_ms: 300 });
    return other.stalled;
  });
  expect(beats()).toBe(renewed);
});

test("a program ends when it has nothing else to do, although the server is away", async () => {
  const program = `
    import { Client } from "@runreel/client";
    const run = new Client({ url: "http://127.0.0.1:9" }).run({ title: "Alone" });
    run.emit("custom.n", { n: 1 });
    await run.complete();`;
  const words = ["--input-type=module", "-e", program];
  const within = { cwd: import.meta.dirname, timeout: 60_000 };
  const { stderr } = await promisify(execFile)(process.execPath, words, within);
  expect(stderr).toBe("runreel: The server cannot be reached\n");
});

test("a server that is killed and started again has every event once", { timeout: 90_000 }, async () => {
  const server = await Server.start();
  try {
    const { client } = telling({ url: server.url });
    const run = client.run({ title: "Killed" });
    for (const n of upTo(3_000)) {
      run.emit("custom.n", { n });
      if (n % 100 === 0) await new Promise((again) => setImmediate(again));
      if (n === 1_000) {
        await run.flush(20);
        await server.kill();
      }
    }
    await server.up();
    expect(await run.complete()).toBe(true);
    expect(numbers(await logOf(client, run.run_id))).toEqual(upTo(3_000));
    expect(client.dropped).toBe(0);
    await server.stop();
  } finally {
    await server.remove();
  }
});
