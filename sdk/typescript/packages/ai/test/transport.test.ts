import { Client, type NewEvent } from "@runreel/client";
import { RunreelChatTransport, type RunreelChatOptions } from "@runreel/ai";
import {
  AbstractChat,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  type ChatInit,
  type ChatState,
  type UIMessage,
} from "ai";
import { eventually } from "../../../testing/eventually.ts";
import { beforeEach, expect, inject, test } from "vitest";
import { Server } from "../../../../../tests/browser/server.ts";

const client = new Client({ url: inject("url") });
let id: string;
beforeEach(() => {
  id = crypto.randomUUID();
});

/** The state of a chat, as a framework would keep it. */
class State implements ChatState<UIMessage> {
  status = "ready" as const;
  error = undefined;
  messages: UIMessage[] = [];
  pushMessage = (message: UIMessage) => void (this.messages = [...this.messages, structuredClone(message)]);
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (at: number, message: UIMessage) =>
    void (this.messages = this.messages.with(at, structuredClone(message)));
  snapshot = <T>(value: T): T => structuredClone(value);
}
class Chat extends AbstractChat<UIMessage> {}

function chatOf(options: Partial<RunreelChatOptions> = {}, init: Partial<ChatInit<UIMessage>> = {}): Chat {
  const transport = new RunreelChatTransport({ url: inject("url"), agent: "helper", ...options });
  return new Chat({ id, transport, state: new State(), ...init });
}

/** A `fetch` whose streams break after so many frames; null lets one be. */
function cutting(cuts: (number | null)[], broken: () => unknown = () => undefined): typeof fetch {
  return async (input, init) => {
    const response = await fetch(input, init);
    if (!response.headers.get("content-type")?.startsWith("text/event-stream")) return response;
    let left = cuts.shift() ?? Infinity;
    let text = "";
    const decoder = new TextDecoder();
    const cut = new TransformStream<Uint8Array, Uint8Array>({
      async transform(bytes, controller) {
        text += decoder.decode(bytes, { stream: true });
        const frames = text.split("\n\n");
        text = frames.pop() ?? "";
        for (const frame of frames) {
          if (left-- > 0) controller.enqueue(new TextEncoder().encode(`${frame}\n\n`));
          else {
            await broken();
            controller.error(new TypeError("network error"));
            return;
          }
        }
      },
    });
    return new Response(response.body?.pipeThrough(cut), response);
  };
}

/** The run that the newest message of the chat is, once the server has it; and what it says. */
async function runOf(from = client) {
  const run = await eventually(async () => {
    const [newest] = (await from.runs.list({ thread_id: id })).runs;
    expect(newest).toBeDefined();
    return newest!;
  });
  const emit = (...events: NewEvent[]) => from.runs.emit(run.run_id, events);
  return { run_id: run.run_id, emit };
}

const token = (span_id: string, text: string): NewEvent => ({
  type: "message.delta",
  span_id,
  payload: { text },
});
const whole = (span_id: string, text: string): NewEvent => ({
  type: "message.completed",
  span_id,
  payload: { role: "assistant", content: [{ type: "text", text }] },
});
const ended: NewEvent = { type: "run.completed", payload: { output: "done" } };
const script: NewEvent[][] = [
  [{ type: "run.started" }, { type: "step.started", span_id: "s1", payload: { name: "model" } }],
  [token("m1", "I ")],
  [token("m1", "look 🌍")],
  [token("m1", ".")],
  [whole("m1", "I look 🌍.")],
  [{ type: "tool.started", span_id: "c1", payload: { name: "search", args: { q: "x" } } }],
  [{ type: "tool.completed", span_id: "c1", payload: { name: "search", result: { hits: 3 } } }],
  [{ type: "step.completed", span_id: "s1", payload: { name: "model" } }],
  [token("m2", "Three ")],
  [whole("m2", "Three hits.")],
  [ended],
];

/** The answer's parts, without what only says that it is complete. */
const answer = (chat: Chat) => chat.messages.at(-1)!.parts;

/** The same without the run's id, with which the ids of its calls and approvals begin. */
const answerOfAnyRun = (chat: Chat) => {
  const { id, parts } = chat.messages.at(-1)!;
  return JSON.parse(JSON.stringify(parts).replaceAll(`${id}/`, "")) as unknown;
};

test("an answer that breaks off after any of its frames goes on, each part once", async () => {
  const uncut = chatOf();
  const asking = uncut.sendMessage({ text: "How many?" });
  const { emit } = await runOf();
  for (const events of script) await emit(...events);
  await asking;
  expect(answer(uncut).map(({ type }) => type)).toEqual(["step-start", "text", "dynamic-tool", "text"]);
  for (let frames = 0; frames < 14; frames++) {
    id = crypto.randomUUID();
    const chat = chatOf({ fetch: cutting([frames, 3, 0]) });
    const asking = chat.sendMessage({ text: "How many?" });
    const { emit, run_id } = await runOf();
    for (const events of script) await emit(...events);
    await asking;
    expect(chat.error, `cut after ${frames}`).toBeUndefined();
    expect(answerOfAnyRun(chat), `cut after ${frames}`).toEqual(answerOfAnyRun(uncut));
    expect(chat.messages.at(-1)).toMatchObject({
      id: run_id,
      metadata: { runId: run_id, status: "completed" },
    });
  }
});

test("an answer whose server is killed in the middle goes on when there is one again", async () => {
  const server = await Server.start();
  try {
    const from = new Client({ url: server.url });
    const chat = chatOf({ url: server.url });
    const asking = chat.sendMessage({ text: "How many?" });
    const { emit } = await runOf(from);
    await emit(...script[0]!, token("m1", "I lo"));
    await eventually(() => expect(answer(chat).at(-1)).toMatchObject({ text: "I lo" }));
    await server.kill();
    await server.up();
    await emit(token("m1", "ok 🌍."), whole("m1", "I look 🌍."), ended);
    await asking;
    expect(answer(chat)).toEqual([
      { type: "step-start" },
      { type: "text", text: "I look 🌍.", state: "done" },
    ]);
    await server.stop();
  } finally {
    await server.remove();
  }
}, 120_000);

test("stop leaves the run alone; cancel ends it, and the answer with it", async () => {
  const transport = new RunreelChatTransport({ url: inject("url"), agent: "helper" });
  const chat = chatOf({}, { transport });
  const asking = chat.sendMessage({ text: "Wait" });
  const { emit, run_id } = await runOf();
  await emit({ type: "run.started" }, token("m1", "I "));
  await eventually(() => expect(answer(chat).at(-1)).toMatchObject({ text: "I " }));
  await chat.stop();
  await asking;
  expect(chat.status).toBe("ready");
  expect((await client.runs.get(run_id)).status).toBe("running");
  const other = chatOf({}, { transport });
  const resuming = other.resumeStream();
  await eventually(() => expect(answer(other).at(-1)).toMatchObject({ text: "I " }));
  await transport.cancel(id);
  await resuming;
  expect([other.status, other.error]).toEqual(["ready", undefined]);
  expect(other.messages.at(-1)?.metadata).toMatchObject({ status: "cancelled" });
  await transport.cancel(id);
  expect((await client.runs.get(run_id)).status).toBe("cancelled");
});

test("stop cancels the run where it is to, also before the answer has begun", async () => {
  const chat = chatOf({ stopCancels: true });
  const sending = chat.sendMessage({ text: "Wait" });
  await eventually(() => expect(chat.status).toBe("submitted"));
  await chat.stop();
  await sending;
  const { run_id } = await runOf();
  await eventually(async () => expect((await client.runs.get(run_id)).status).toBe("cancelled"));
});

test("a page that comes back sees the answer from its beginning; twice at once is no stop", async () => {
  const first = chatOf();
  const asking = first.sendMessage({ text: "How many?" });
  const { emit, run_id } = await runOf();
  for (const events of script.slice(0, 3)) await emit(...events);
  const second = chatOf({ stopCancels: true });
  const resuming = [second.resumeStream(), second.resumeStream()];
  await eventually(() => expect(answer(second).at(-1)).toMatchObject({ text: "I look 🌍" }));
  expect((await client.runs.get(run_id)).status).toBe("running");
  for (const events of script.slice(3)) await emit(...events);
  await Promise.all([asking, ...resuming]);
  expect(answer(second)).toEqual(answer(first));
  expect((await client.runs.get(run_id)).status).toBe("completed");
  const third = chatOf();
  await third.resumeStream();
  expect([third.status, third.messages]).toEqual(["ready", []]);
  // It was under way when the page loaded what was said before.
  const fourth = chatOf({ resumesEnded: true });
  await fourth.resumeStream();
  expect(answer(fourth)).toEqual(answer(first));
});

test("an answer that waits for a person goes on after the approval, and may break off there as well", async () => {
  const ask: NewEvent[] = [
    { type: "run.started" },
    { type: "step.started", span_id: "s1", payload: { name: "model" } },
    whole("m1", "OK"),
    {
      type: "interrupt.requested",
      span_id: "c1",
      payload: { kind: "approval", prompt: "Really?", tool: "rm", tool_call_id: "c1", args: { path: "/" } },
    },
    { type: "run.interrupted", payload: { interrupt_id: "c1" } },
  ];
  const rest: NewEvent[][] = [
    [{ type: "tool.started", span_id: "c1", payload: { name: "rm", args: { path: "/" } } }],
    [{ type: "tool.completed", span_id: "c1", payload: { name: "rm", result: "gone" } }],
    [token("m2", "O"), whole("m2", "OK")],
    [ended],
  ];
  const answers: unknown[] = [];
  for (const frames of [null, 0, 1, 2, 3, 4, 5]) {
    id = crypto.randomUUID();
    const sendAutomaticallyWhen = lastAssistantMessageIsCompleteWithApprovalResponses;
    const chat = chatOf({ fetch: cutting([null, frames, 6]) }, { sendAutomaticallyWhen });
    const asking = chat.sendMessage({ text: "Delete it" });
    const { emit, run_id } = await runOf();
    await emit(...ask);
    await asking;
    const approved = chat.addToolApprovalResponse({ id: `${run_id}/c1`, approved: true });
    await eventually(async () => expect((await client.runs.get(run_id)).status).toBe("running"));
    for (const events of rest) await emit(...events);
    await approved;
    await eventually(() => expect(chat.messages.at(-1)?.metadata).toMatchObject({ status: "completed" }));
    expect(chat.messages.length).toBe(2);
    answers.push(answerOfAnyRun(chat));
  }
  expect(answers[0]).toMatchObject([
    { type: "step-start" },
    { type: "text", text: "OK" },
    { type: "dynamic-tool", state: "output-available", output: "gone" },
    { type: "text", text: "OK" },
  ]);
  for (const one of answers) expect(one).toEqual(answers[0]);
});

test("a run that fails says so once, and a chat whose server stays away says so as well", async () => {
  const chat = chatOf({ fetch: cutting([2]) });
  const asking = chat.sendMessage({ text: "Fail" });
  const { emit } = await runOf();
  await emit({ type: "run.started" }, whole("m1", "So far"), {
    type: "run.failed",
    payload: { error: "no model" },
  });
  await asking;
  expect(chat.error?.message).toBe("no model");

  id = crypto.randomUUID();
  const away: typeof fetch = async (input, init) => {
    if (init?.method !== "POST") throw new TypeError("fetch failed");
    return cutting([1])(input, init);
  };
  const lost = chatOf({ fetch: away, retries: 2 });
  const sending = lost.sendMessage({ text: "Hello" });
  const second = await runOf();
  await second.emit({ type: "run.started" }, token("m1", "Hi"));
  await sending;
  expect([lost.status, (lost.error as { code?: string }).code]).toEqual(["error", "unreachable"]);
});

test("only what is new travels, and a refusal is told", async () => {
  const bodies: { messages: { role: string }[] }[] = [];
  const seen: typeof fetch = (input, init) => {
    if (typeof init?.body === "string") bodies.push(JSON.parse(init.body) as never);
    return fetch(input, init);
  };
  const chat = chatOf({ fetch: seen });
  for (const text of ["One", "Two", "Three"]) {
    const asking = chat.sendMessage({ text });
    const { emit } = await eventually(async () => {
      const found = await runOf();
      expect((await client.runs.get(found.run_id)).status).toBe("queued");
      return found;
    });
    await emit({ type: "run.started" }, whole("m", text), ended);
    await asking;
  }
  expect(bodies.map(({ messages }) => messages.map(({ role }) => role))).toEqual([
    ["user"],
    ["assistant", "user"],
    ["assistant", "user"],
  ]);
  expect(chat.messages.length).toBe(6);
  const refused = chatOf({}, { id: "not a thread" });
  await refused.sendMessage({ text: "Hello" });
  expect(refused.error).toMatchObject({ name: "RunreelError", code: "invalid_request" });
});
