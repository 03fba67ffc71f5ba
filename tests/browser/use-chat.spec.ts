/** The page of docs/protocols/ai-sdk.md as it stands there: `useChat` without a package of ours. */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "@playwright/test";
// What the TypeScript packages are tested with has the AI SDK and React, too.
import { rolldown } from "../../sdk/typescript/node_modules/rolldown/dist/index.mjs";
import { expect, test as base } from "./listed.ts";
import { Producer, type NewEvent } from "./producer.ts";
import type { Server } from "./server.ts";

const root = join(import.meta.dirname, "../..");
const address = "http://127.0.0.1:7717";
const document = readFileSync(join(root, "docs/protocols/ai-sdk.md"), "utf8");
const source = /<!-- page -->\n```tsx\n([^]*?)```/.exec(document)?.[1] ?? "";

/** The page's script, made as an application's would be. */
async function built(): Promise<string> {
  const main = join(root, "sdk/typescript/packages/ai/page.tsx");
  const given = {
    name: "given",
    resolveId: (id: string) => (id === main ? main : null),
    load: (id: string) => (id === main ? source : null),
  };
  const transform = { define: { "process.env.NODE_ENV": '"development"' } };
  const bundle = await rolldown({ input: main, platform: "browser", plugins: [given], transform, logLevel: "silent" });
  const { output } = await bundle.generate({ format: "esm" });
  return output[0].code;
}

interface Fixtures {
  producer: Producer;
  /** Shows the page, as a visitor does that has just come or reloads it. */
  load: () => Promise<void>;
}

const test = base.extend<Fixtures, { script: string }>({
  script: [async ({}, use) => use(await built()), { scope: "worker" }],
  producer: async ({ server }, use) => use(new Producer(() => server.url)),
  load: async ({ page, listed, server, script }, use) => {
    expect(source).toContain(address);
    const content = script.replaceAll(address, server.url);
    await page.goto(listed);
    await use(async () => {
      await page.reload();
      await page.addScriptTag({ type: "module", content });
    });
  },
});
test.use({ isOpen: true });

const said = (page: Page) => expect.poll(() => page.locator("p").allTextContents());
const isReady = (page: Page) => expect(page.locator("#root")).toContainText(/ready$/);
const begun: NewEvent[] = [
  { type: "run.started" },
  { type: "message.completed", span_id: "q", payload: { role: "user", content: [{ type: "text", text: "Hello!" }] } },
];
const ended = (text: string): NewEvent[] => [
  { type: "message.completed", span_id: "m", payload: { role: "assistant", content: [{ type: "text", text }] } },
  { type: "run.completed", payload: { output: text } },
];

/** Says hello in the page; the run that this began. */
async function asked(page: Page, server: Server): Promise<string> {
  const runs = async () => {
    const response = await fetch(`${server.url}/api/runs?agent=parrot`);
    return ((await response.json()) as { runs: { run_id: string }[] }).runs;
  };
  const before = (await runs()).length;
  await page.getByRole("button", { name: "Say hello" }).click();
  await expect.poll(async () => (await runs()).length).toBe(before + 1);
  return (await runs())[0]!.run_id;
}

test("useChat without a package of ours is left after each word, and after the end: each word is there once", async ({
  page,
  server,
  producer,
  load,
}) => {
  await load();
  const run = await asked(page, server);
  await producer.emit(run, ...begun);
  let text = "";
  for (const word of ["I ", "am ", "a ", "🦜 ", "parrot."]) {
    text += word;
    await producer.emit(run, producer.token("m", word));
    await said(page).toEqual(["user: Hello!", `assistant: ${text}`]);
    await load();
    await said(page).toEqual(["user: Hello!", `assistant: ${text}`]);
  }
  await producer.emit(run, ...ended(text));
  await isReady(page);
  const first = ["user: Hello!", `assistant: ${text}`];
  await said(page).toEqual(first);
  await load();
  await isReady(page);
  await said(page).toEqual(first);

  const second = await asked(page, server);
  await producer.emit(second, ...begun, producer.token("m", "Hello "));
  await said(page).toEqual([...first, "user: Hello!", "assistant: Hello "]);
  await server.kill();
  await server.up();
  await expect(page.locator("#root")).toContainText(/error$/);
  await load();
  await producer.emit(second, ...ended("Hello again."));
  await said(page).toEqual([...first, "user: Hello!", "assistant: Hello again."]);
  await isReady(page);
});

test("an answer that is completed while the page loads is there", async ({ page, server, producer, load }) => {
  await load();
  const run = await asked(page, server);
  await producer.emit(run, ...begun, producer.token("m", "I am "));
  await page.route("**/stream?ended=true", async (route) => {
    await producer.emit(run, ...ended("I am a parrot."));
    await route.continue();
  });
  await load();
  await said(page).toEqual(["user: Hello!", "assistant: I am a parrot."]);
  await isReady(page);
});
