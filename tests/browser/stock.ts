import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test as base } from "./fixtures.ts";
import { encoded } from "./png.ts";
import type { Producer } from "./producer.ts";
import { Server, startAndStop_ms } from "./server.ts";
import { tripRun } from "./trip.ts";

const config = `
[channels.web]
agent = "echo"

[agents.echo]
model = "echo"
`;

/** The server has an agent of its own, which says what it is told, and a channel to it. */
export const test = base.extend({
  server: [
    async ({ made }, use) => {
      const file = join(made.folder, "config.toml");
      await writeFile(file, config);
      const server = await Server.start(made, { flags: ["--config", file] });
      try {
        await use(server);
        await server.stop();
      } finally {
        await server.remove();
      }
    },
    { scope: "test", timeout: startAndStop_ms },
  ],
});

const hour_ms = 3_600_000;
const titles = ["Plan a weekend in Lisbon", "Summarise the week's tickets", "Import the catalogue", "Delete old branches"];
const agents = ["planner", "reporter", "importer", "janitor"];
const models = ["gpt-4o", "gpt-4o-mini", "claude-sonnet-4-20250514"];

/** Runs of the last hours, each with a call of a model and of a tool; every fifth has failed. */
async function dayOfRuns(producer: Producer): Promise<void> {
  for (let n = 0; n < 40; n += 1) {
    const start_ms = Date.now() - ((n * 7) % 22) * hour_ms - 60_000;
    const at = (ms: number) => new Date(start_ms + ms).toISOString();
    const agent = agents[n % agents.length];
    const run_id = await producer.createRun({ title: titles[n % titles.length], agent, at: at(0) });
    const usage = { input_tokens: 700 + 131 * n, output_tokens: 40 + 17 * n };
    const text = "Done.";
    const end =
      n % 5 === 4
        ? { type: "run.failed", at: at(9_000), payload: { error: { code: "timeout", message: "no answer in 30 s" } } }
        : { type: "run.completed", at: at(9_000), payload: { output: { text } } };
    await producer.emit(
      run_id,
      { type: "tool.started", span_id: "c1", at: at(100), payload: { name: ["search", "fetch"][n % 2] } },
      { type: "tool.completed", span_id: "c1", at: at(700 + 90 * n), payload: { result: "ok" } },
      { type: "message.completed", span_id: "m1", at: at(8_000), payload: { text, usage, model: models[n % 3] } },
      end,
    );
  }
}

/** A run of a thread: what was asked, and the answer. */
export async function say(producer: Producer, thread_id: string, asked: string, answer: string): Promise<string> {
  const run_id = await producer.createRun({ title: asked, thread_id, agent: "planner" });
  const parts = (text: string) => [{ type: "text", text }];
  await producer.emit(
    run_id,
    { type: "message.completed", span_id: "u1", payload: { role: "user", content: parts(asked) } },
    { type: "message.completed", span_id: "a1", payload: { role: "assistant", content: parts(answer) } },
    { type: "run.completed", payload: { output: { text: answer } } },
  );
  return run_id;
}

export const put = (producer: Producer, path: string, body: unknown) => send(producer, "PUT", path, body);
export const post = (producer: Producer, path: string, body: unknown) => send(producer, "POST", path, body);

async function send(producer: Producer, method: string, path: string, body: unknown): Promise<void> {
  const headers = { "content-type": "application/json" };
  const response = await fetch(producer.url() + path, { method, headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
}

async function conversation(producer: Producer): Promise<void> {
  const said: [string, string][] = [
    ["Where should we go next weekend?", "**Lisbon.** Both days are clear:\n\n- 24 °C\n- no wind"],
    ["And by train?", "Porto, 3 h from here by the night train."],
    ["Book it.", "Booked for Saturday. The tickets are in `tickets.pdf`."],
  ];
  for (const [asked, answer] of said) await say(producer, "weekend", asked, answer);
  const messages = said.flatMap(([user, assistant]) => [
    { role: "user", content: user },
    { role: "assistant", content: assistant },
  ]);
  for (const step of [0, 1, 2]) {
    const value = messages.slice(0, 2 * step + 2).map(({ role, content }) => ({ role, content: content.slice(0, 40) }));
    await put(producer, `/api/threads/weekend/checkpoints/1f0c000${step}`, {
      parent_id: step === 0 ? null : `1f0c000${step - 1}`,
      checkpoint: { t: "json", b: btoa(JSON.stringify({ v: 1, step })) },
      metadata: { source: step === 0 ? "input" : "loop", step },
      versions: { messages: step },
      blobs: { messages: { version: step, t: "json", b: Buffer.from(JSON.stringify(value)).toString("base64") } },
    });
  }
  await put(producer, "/api/threads/weekend", { metadata: { customer: "Anna", topic: "travel" } });
}

export async function upload(
  producer: Producer,
  run_id: string,
  name: string,
  media_type: string,
  body: string | Uint8Array,
): Promise<void> {
  const path = `/api/runs/${run_id}/artifacts?name=${encodeURIComponent(name)}`;
  const init = { method: "POST", headers: { "content-type": media_type }, body: Buffer.from(body) };
  const response = await fetch(producer.url() + path, init);
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
}

/** A picture, as PNG: bars of four colours. */
export function image(width = 160, height = 90): Uint8Array {
  const colours = [
    [127, 160, 230],
    [224, 164, 88],
    [79, 174, 139],
    [169, 139, 224],
  ];
  const rows = Array.from({ length: height }, (_, y) => [
    0,
    ...Array.from({ length: width }, (_, x) => {
      const bar = Math.floor((x * 8) / width);
      const isBar = height - y < (height * (bar + 2)) / 10;
      return isBar ? (colours[bar % 4] as number[]) : [240, 240, 238];
    }).flat(),
  ]);
  return encoded(width, height, Buffer.from(rows.flat()));
}

async function files(producer: Producer): Promise<void> {
  const run_id = await producer.createRun({ title: "Nightly report", agent: "reporter" });
  await upload(producer, run_id, "bundle.zip", "application/zip", "PK");
  await upload(producer, run_id, "settings.json", "application/json", '{"retries":3,"regions":["eu","us"]}');
  await upload(producer, run_id, "calls.csv", "text/csv", "name,calls\nsearch,112\nfetch,87\nwrite,12\n");
  await upload(producer, run_id, "chart.png", "image/png", image());
  await upload(producer, run_id, "report.md", "text/markdown", "# Nightly report\n\n- 12 tickets, 3 new\n- nothing failed\n");
  await producer.createRun({ title: "Left behind", agent: "nobody", start: false });
}

/** What somebody writes in a chat of the channel. */
export async function write(producer: Producer, chat_id: string, text: string): Promise<void> {
  const response = await fetch(`${producer.url()}/api/channels/web/messages`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ chat_id, user_id: "ann", text }),
  });
  if (response.status !== 202) throw new Error(`a message: ${response.status} ${await response.text()}`);
}

/** A log with something for every page. */
export async function stock(producer: Producer): Promise<void> {
  await tripRun(producer, true);
  await dayOfRuns(producer);
  await conversation(producer);
  await files(producer);
  for (const chat of ["door", "desk"]) await write(producer, chat, "Is anybody there?");
  const saved = { name: "weekend-2026", thread_id: "weekend", description: "As it was on Friday" };
  await post(producer, "/api/saved-sessions", saved);
}
