import { Annotation, END, START, StateGraph } from "@langchain/langgraph";
import { emptyCheckpoint, uuid6, type CheckpointTuple } from "@langchain/langgraph-checkpoint";
import { RunreelError } from "@runreel/client";
import { RunreelSaver } from "@runreel/langgraph";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Tenants } from "../../../testing/tenants.ts";

let tenants: Tenants;
beforeAll(async () => {
  tenants = await Tenants.start();
});
afterAll(() => tenants.stop());

const saverOf = (subject: string) => new RunreelSaver({ url: tenants.url, token: tenants.token(subject) });
const at = (thread_id: string, more = {}) => ({ configurable: { thread_id, ...more } });
const looped = { source: "loop", step: 0, parents: {} } as const;

async function all(list: AsyncGenerator<CheckpointTuple>): Promise<CheckpointTuple[]> {
  const tuples = [];
  for await (const tuple of list) tuples.push(tuple);
  return tuples;
}

/** A graph that counts, one step for each turn. */
function counter(saver: RunreelSaver) {
  const State = Annotation.Root({
    n: Annotation<number>({ reducer: (a, b) => a + b, default: () => 0 }),
    said: Annotation<string[]>({ reducer: (a, b) => [...a, ...b], default: () => [] }),
  });
  return new StateGraph(State)
    .addNode("count", ({ n }) => ({ n: 1, said: [`${n}`] }))
    .addEdge(START, "count")
    .addEdge("count", END)
    .compile({ checkpointer: saver });
}

test("a graph that waits for a person goes on in another process after its own was killed", async () => {
  const script = fileURLToPath(new URL("approval.mjs", import.meta.url));
  const of = [script, tenants.url, tenants.token("approver"), "approval"];
  const first = spawn(process.execPath, [...of, "start"], { stdio: ["ignore", "pipe", "inherit"] });
  const printed: string[] = [];
  for await (const line of createInterface(first.stdout)) {
    printed.push(line);
    if (line.startsWith("{")) break;
  }
  first.kill("SIGKILL");
  await once(first, "exit");
  const [ran, waiting = "{}"] = printed;
  expect(ran).toBe("ran draft");
  expect(JSON.parse(waiting)).toMatchObject({
    done: ["draft"],
    __interrupt__: [{ value: { question: "Send it?" } }],
  });
  const { stdout } = await promisify(execFile)(process.execPath, [...of, "resume"]);
  expect(stdout).toBe(`ran send\n${JSON.stringify({ done: ["draft", "ask", "send yes"], answer: "yes" })}\n`);
});

test("the same thread id of two principals is two threads, in every method", async () => {
  const [ada, bob] = [saverOf("ada"), saverOf("bob")];
  await counter(ada).invoke({ n: 5 }, at("shared"));
  expect(await bob.getTuple(at("shared"))).toBeUndefined();
  expect(await all(bob.list(at("shared")))).toEqual([]);
  expect(await all(bob.list({}))).toEqual([]);
  await bob.deleteThread("shared");
  await counter(bob).invoke({ n: 1 }, at("shared"));
  expect((await counter(ada).getState(at("shared"))).values).toEqual({ n: 6, said: ["5"] });
  expect((await counter(bob).getState(at("shared"))).values).toEqual({ n: 2, said: ["1"] });
});

test("two branches of one checkpoint keep their own values", async () => {
  const graph = counter(saverOf("branches"));
  await graph.invoke({ n: 1 }, at("tree"));
  const trunk = (await graph.getState(at("tree"))).config;
  const one = await graph.updateState(trunk, { n: 10 });
  const two = await graph.updateState(trunk, { n: 20 });
  expect((await graph.getState(one)).values).toMatchObject({ n: 12 });
  expect((await graph.getState(two)).values).toMatchObject({ n: 22 });
});

test("a version counts on, and two versions after the same one differ", () => {
  const saver = saverOf("numbers");
  const first = saver.getNextVersion(undefined);
  expect(Math.floor(first)).toBe(1);
  expect(Math.floor(saver.getNextVersion(first))).toBe(2);
  expect(saver.getNextVersion(7)).not.toBe(saver.getNextVersion(7));
});

test("values of every kind come back, NUL and halves of characters included", async () => {
  const saver = saverOf("values");
  const values = {
    text: "a\0b \ud83d half",
    bytes: Uint8Array.from({ length: 100_000 }, (_, n) => n % 256),
    empty: new Uint8Array(),
    set: new Set([1, 2]),
    nothing: null,
  };
  const versions = Object.fromEntries(Object.keys(values).map((name) => [name, 1]));
  const checkpoint = { ...emptyCheckpoint(), channel_values: values, channel_versions: versions };
  const metadata = { ...looped, note: "a\0b \ud83d half" };
  await saver.put(at("kinds"), checkpoint, metadata, versions);
  const tuple = await saver.getTuple(at("kinds"));
  expect(tuple?.checkpoint.channel_values).toEqual(values);
  expect(tuple?.metadata).toEqual({ ...looped, note: "ab \ufffd half" });
});

test("metadata that is long or has no form in JSON does not break a graph", async () => {
  const saver = saverOf("long");
  const circular: Record<string, unknown> = {};
  circular["self"] = circular;
  const long = {
    prompt: "é".repeat(40_000),
    tone: "dry",
    "\0": "\0".repeat(70_000),
    big: 7n,
    none: NaN,
    circular,
  };
  expect(await counter(saver).invoke({ n: 1 }, { ...at("long"), metadata: long })).toMatchObject({ n: 2 });
  const found = (await saver.getTuple(at("long")))?.metadata;
  expect(found).toMatchObject({ source: "loop" });
  expect(found).not.toHaveProperty("prompt");
  const many = Object.fromEntries(Array.from({ length: 9_000 }, (_, n) => [`m${n}`, "é".repeat(9)]));
  await saver.put(at("many"), emptyCheckpoint(), { ...looped, ...many }, {});
  const kept = (await saver.getTuple(at("many")))?.metadata;
  const size = new TextEncoder().encode(JSON.stringify(kept)).length;
  expect(kept).toMatchObject({ ...looped, $truncated: true });
  expect(size).toBeGreaterThan(65_000);
  expect(size).toBeLessThanOrEqual(65_536);
});

test("a list of several pages has each checkpoint once, newest first, up to its limit", async () => {
  const saver = saverOf("pages");
  const ids = Array.from({ length: 130 }, (_, n) => uuid6(n)).sort();
  for (const id of ids) await saver.put(at("long"), { ...emptyCheckpoint(), id }, looped, {});
  const idsOf = async (limit?: number) =>
    (await all(saver.list(at("long"), limit === undefined ? {} : { limit }))).map(
      ({ checkpoint }) => checkpoint.id,
    );
  const newest = ids.toReversed();
  expect(await idsOf()).toEqual(newest);
  expect(await idsOf(120)).toEqual(newest.slice(0, 120));
  expect(await idsOf(0)).toEqual([]);
});

test("a checkpoint belongs to the run that the config names", async () => {
  const saver = saverOf("runs");
  const run_id = crypto.randomUUID();
  await counter(saver).invoke({ n: 1 }, { ...at("run"), metadata: { run_id } });
  const headers = { authorization: `Bearer ${tenants.token("runs")}` };
  const newest = await fetch(`${tenants.url}/api/threads/run/checkpoints/latest?run_id=${run_id}`, {
    headers,
  });
  expect(await newest.json()).toMatchObject({ thread_id: "run", run_id, metadata: { source: "loop" } });
});

test("a checkpoint of a Python program is listed, and reading its values says what they are", async () => {
  const saver = saverOf("python");
  const headers = { authorization: `Bearer ${tenants.token("python")}`, "content-type": "application/json" };
  const body = JSON.stringify({
    checkpoint: { t: "msgpack", b: "gA==" },
    metadata: looped,
    versions: {},
    blobs: {},
  });
  const url = `${tenants.url}/api/threads/py/checkpoints`;
  expect((await fetch(`${url}/1f0c`, { method: "PUT", headers, body })).status).toBe(201);
  expect(await (await fetch(url, { headers })).json()).toMatchObject({
    checkpoints: [{ checkpoint_id: "1f0c" }],
  });
  await expect(saver.getTuple(at("py"))).rejects.toThrow("msgpack");
});

test("a thread id that the server would refuse is refused before anything is sent", async () => {
  const saver = new RunreelSaver({ url: "http://127.0.0.1:1", fetch: () => expect.unreachable() });
  for (const thread_id of ["", "a/b", "ä", "x".repeat(256)]) {
    await expect(saver.getTuple(at(thread_id))).rejects.toThrow("thread_id must be");
  }
});

test("a request is repeated while the server is away, and a refusal is not", async () => {
  const answers = [503, 429, 0, 200];
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    const status = answers.shift() ?? 403;
    if (status === 0) return void request.socket.destroy();
    response.writeHead(status, { "content-type": "application/json" }).end("{}");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const saver = new RunreelSaver({ url: `http://127.0.0.1:${port}` });
  await saver.put(at("away"), { ...emptyCheckpoint(), id: "1f0d" }, looped, {});
  expect(asked).toEqual(Array(4).fill("PUT /api/threads/away/checkpoints/1f0d"));
  const refused = await saver.getTuple(at("away")).catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(RunreelError);
  expect(refused).toMatchObject({ status: 403 });
  expect(asked.length).toBe(5);
  const impatient = new RunreelSaver({ url: `http://127.0.0.1:${port}`, retries: 1 });
  answers.push(503, 503, 200);
  await expect(impatient.getTuple(at("away"))).rejects.toMatchObject({ status: 503 });
  server.close();
});

test("a saver in a config shows neither its credential nor its address when it is printed", () => {
  const saver = new RunreelSaver({ url: "http://127.0.0.1:1", token: "rr_secret" });
  expect(JSON.stringify({ saver })).toBe('{"saver":"[RunreelSaver]"}');
});
