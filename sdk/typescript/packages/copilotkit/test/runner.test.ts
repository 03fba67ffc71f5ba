import type { BaseEvent, Message } from "@ag-ui/client";
import { ProxiedCopilotRuntimeAgent } from "@copilotkit/core";
import { Client, type RunEvent } from "@runreel/client";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { lastValueFrom, toArray } from "rxjs";
import { afterEach, beforeEach, expect, inject, test } from "vitest";
import { eventually } from "../../../testing/eventually.ts";
import { serve } from "./runtime.mjs";

const client = new Client({ url: inject("url") });
let runtime: Awaited<ReturnType<typeof serve>>;
let threadId: string;
beforeEach(async () => {
  // Its runtime counts its users.
  process.env["COPILOTKIT_TELEMETRY_DISABLED"] = "true";
  runtime = await serve(inject("url"), 30_000);
  threadId = crypto.randomUUID();
});
afterEach(() => runtime.close());

/** A page's agent, as CopilotKit makes it. */
const page = (url = runtime.url) =>
  new ProxiedCopilotRuntimeAgent({ runtimeUrl: url, agentId: "scripted", threadId, transport: "rest" });

function ask(agent: ProxiedCopilotRuntimeAgent, content: string, tools: object[] = []) {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content } as Message);
  return agent.runAgent({ tools } as never);
}

async function connected(url?: string): Promise<ProxiedCopilotRuntimeAgent> {
  const agent = page(url);
  await agent.connectAgent();
  return agent;
}

const said = async () =>
  (await lastValueFrom(runtime.runner.connect({ threadId }).pipe(toArray()))) as (BaseEvent &
    Record<string, unknown>)[];

/** The newest run of the thread, and its log. */
async function logged() {
  const [run] = (await client.runs.list({ thread_id: threadId })).runs;
  const { events } = await client.runs.events(run!.run_id);
  return { run: run!, events };
}
const typesOf = (events: RunEvent[]) => events.map(({ type }) => type);

test("a page that comes back to another runtime has the same messages and the same state", async () => {
  const first = page();
  await ask(first, "work");
  const other = await serve(inject("url"), 30_000);
  const second = await connected(other.url);
  expect(second.messages).toEqual(first.messages);
  expect(second.messages.map(({ role }) => role)).toEqual([
    "user",
    "reasoning",
    "assistant",
    "tool",
    "assistant",
  ]);
  expect(second.state).toEqual(first.state);
  expect(second.state).toMatchObject({ todo: ["a", "b"] });
  other.close();
  const { run, events } = await logged();
  expect(run).toMatchObject({
    status: "completed",
    output: { hits: 3 },
    agent: "scripted",
    thread_id: threadId,
  });
  expect(typesOf(events)).toEqual([
    "run.created",
    "run.started",
    "message.completed",
    "step.started",
    "reasoning.completed",
    "agui.state_snapshot",
    "message.completed",
    "tool.started",
    "tool.completed",
    "agui.state_delta",
    "agui.custom",
    "step.completed",
    "message.completed",
    "run.completed",
  ]);
});

test("the log says what the agent said: the events of a connection are those of the run", async () => {
  const heard: BaseEvent[] = [];
  const agent = page();
  agent.subscribe({ onEvent: ({ event }) => void heard.push(event) });
  await ask(agent, "work");
  const typesOf = (events: BaseEvent[]) =>
    events.map(({ type }) => type).filter((type) => !/(CONTENT|ARGS)$/.test(type));
  const again = await said();
  expect(typesOf(again)).toEqual(typesOf(heard));
  const only = (type: string) => again.find((event) => event.type === type);
  expect(only("CUSTOM")).toEqual({ type: "CUSTOM", name: "progress", value: { percent: 100 } });
  expect(only("RUN_FINISHED")).toMatchObject({ threadId, result: { hits: 3 } });
});

test("a client of AG-UI that reads the run from the server has the same messages", async () => {
  const agent = page();
  await ask(agent, "work");
  const { run } = await logged();
  const joined = await client.transport.call(`/api/agui/runs/${run.external_id}`);
  const events = [...(await joined.text()).matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!));
  const { messages } = events.find(({ type }) => type === "MESSAGES_SNAPSHOT");
  const known = ({ id, role, content }: Message) => ({ id, role, content });
  expect(messages.map(known)).toEqual(agent.messages.map(known));
});

test("an input that is too large for the run leaves its messages in the log", async () => {
  const agent = page();
  agent.setState({ note: "n".repeat(70_000) });
  await ask(agent, "work");
  expect((await logged()).run.input).toEqual({ threadId, runId: expect.any(String), messages: [] });
  expect((await connected()).messages).toEqual(agent.messages);
});

test("a page that comes in the middle has the text so far and then the rest, from another runtime too", async () => {
  const first = page();
  const running = ask(first, "talk");
  const other = await serve(inject("url"), 30_000);
  await eventually(() => expect(first.messages.at(-1)).toMatchObject({ content: "Hello, " }));
  await eventually(async () =>
    expect((await client.runs.list({ thread_id: threadId })).runs).toHaveLength(1),
  );
  const second = page(other.url);
  const following = second.connectAgent();
  await eventually(() => expect(second.messages.at(-1)).toMatchObject({ content: "Hello, " }));
  expect(await other.runner.isRunning({ threadId })).toBe(true);
  runtime.gate.open();
  await Promise.all([running, following]);
  expect(second.messages).toEqual(first.messages);
  expect(second.messages.at(-1)).toMatchObject({ role: "assistant", content: "Hello, wörld 🌍" });
  expect(await other.runner.isRunning({ threadId })).toBe(false);
  other.close();
});

test("a run goes on when its page leaves", async () => {
  const first = page();
  const running = ask(first, "talk").catch(() => undefined);
  await eventually(() => expect(first.messages.at(-1)).toMatchObject({ content: "Hello, " }));
  await first.detachActiveRun();
  await running;
  runtime.gate.open();
  const second = await connected();
  expect(second.messages.at(-1)).toMatchObject({ content: "Hello, wörld 🌍" });
});

test("a runtime killed in the middle leaves a run that the next one ends, and the thread goes on", async () => {
  const script = fileURLToPath(new URL("runtime.mjs", import.meta.url));
  const child = spawn(process.execPath, [script, inject("url"), "1000"], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const url = (await once(createInterface(child.stdout), "line"))[0] as string;
  const question = { id: crypto.randomUUID(), role: "user", content: "talk" };
  const rest = { tools: [], context: [], state: {}, forwardedProps: {} };
  const body = JSON.stringify({ threadId, runId: crypto.randomUUID(), messages: [question], ...rest });
  const headers = { "content-type": "application/json", accept: "text/event-stream" };
  const response = await fetch(`${url}/agent/scripted/run`, { method: "POST", headers, body });
  let heard = "";
  for await (const bytes of response.body!) {
    heard += Buffer.from(bytes).toString();
    if (heard.includes("Hello, ")) break;
  }
  child.kill("SIGKILL");
  await once(child, "exit");
  await eventually(async () => expect(await runtime.runner.isRunning({ threadId })).toBe(false));
  const { run } = await logged();
  expect(run).toMatchObject({ status: "failed", error: { code: "RUNTIME_LOST" } });
  const second = page();
  await second.connectAgent().catch(() => undefined);
  expect(second.messages[0]).toEqual(question);
  await ask(second, "work");
  const third = await connected();
  expect(third.messages).toEqual(second.messages);
});

test("a tool of the page is asked for, answered, and both are there when it comes back", async () => {
  const agent = page();
  const tools = [
    { name: "confirm", description: "Ask the user", parameters: { type: "object", properties: {} } },
  ];
  await ask(agent, "ask", tools);
  const call = agent.messages.at(-1) as { toolCalls?: { id: string }[] };
  const { run, events } = await logged();
  expect(run.output).toMatchObject({ tool_calls: [{ name: "confirm", args: {} }] });
  expect(events.find(({ type }) => type === "tool.started")?.payload).toMatchObject({ client: true });
  const toolCallId = call.toolCalls?.[0]?.id;
  agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId, content: "yes" } as Message);
  await agent.runAgent({ tools } as never);
  expect(agent.messages.at(-1)).toMatchObject({ content: "You said yes." });
  expect((await connected()).messages).toEqual(agent.messages);
});

test("a run is stopped through any runtime, and the log says so", async () => {
  const first = page();
  const running = ask(first, "talk").catch(() => undefined);
  await eventually(() => expect(first.messages.at(-1)).toMatchObject({ content: "Hello, " }));
  expect(await runtime.runner.stop({ threadId, runId: "another" })).toBe(false);
  expect(await runtime.runner.stop({ threadId })).toBe(true);
  expect(await runtime.runner.stop({ threadId })).toBe(false);
  await running;
  expect((await logged()).run).toMatchObject({ status: "cancelled" });
  expect((await connected()).messages.at(-1)).toMatchObject({ content: "Hello, " });

  const again = ask(first, "talk").catch(() => undefined);
  await eventually(async () =>
    expect((await client.runs.list({ thread_id: threadId })).runs).toHaveLength(2),
  );
  const other = await serve(inject("url"), 30_000);
  expect(await other.runner.stop({ threadId })).toBe(true);
  expect((await logged()).run).toMatchObject({ status: "cancelled" });
  runtime.gate.open();
  await again;
  other.close();
});

test("an agent that breaks leaves what it had said, closed, and a failed run", async () => {
  const agent = page();
  const running = ask(agent, "break").catch(() => undefined);
  await eventually(() => expect(agent.messages.at(-1)).toMatchObject({ content: "So fa" }));
  runtime.gate.open();
  await running;
  const { run, events } = await logged();
  expect(run).toMatchObject({
    status: "failed",
    error: { type: "Error", message: "the model is gone", code: "INCOMPLETE_STREAM" },
  });
  expect((run.error as { stack: string }).stack).toMatch(/^ +at .*runtime\.mjs/);
  expect(typesOf(events).slice(3)).toEqual([
    "step.started",
    "message.completed",
    "step.completed",
    "run.failed",
  ]);
  const again = await said();
  expect(again.slice(-3).map(({ type }) => type)).toEqual(["TEXT_MESSAGE_END", "STEP_FINISHED", "RUN_ERROR"]);
});

test("a thread has one run at a time, whichever runtime is asked", async () => {
  const first = page();
  const running = ask(first, "talk");
  await eventually(() => expect(first.messages.at(-1)).toMatchObject({ content: "Hello, " }));
  const agent = { agentId: "scripted", runAgent: () => expect.unreachable() } as never;
  const request = {
    threadId,
    agent,
    input: { threadId, runId: crypto.randomUUID(), tools: [], messages: [] } as never,
  };
  expect(() => runtime.runner.run(request)).toThrow("Thread already running");
  const other = await serve(inject("url"), 30_000);
  await expect(lastValueFrom(other.runner.run(request))).rejects.toThrow("Thread already running");
  other.close();
  runtime.gate.open();
  await running;
});

test("a thread that nobody has begun is empty", async () => {
  expect(await said()).toEqual([]);
  expect(await runtime.runner.isRunning({ threadId })).toBe(false);
  expect(await runtime.runner.stop({ threadId })).toBe(false);
});
