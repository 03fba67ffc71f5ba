import { expect, test as base } from "@playwright/test";
import { resolve } from "node:path";
import { freePort, Program } from "./programs.ts";
import { Server, startAndStop_ms } from "./server.ts";

const folder = resolve(import.meta.dirname, "../../examples/ai-sdk");
const test = base.extend<{ page_url: string; server: Server }>({
  page_url: async ({}, use) => use(`http://127.0.0.1:${await freePort()}`),
  server: [
    async ({ page_url }, use) => {
      const config = resolve(folder, "runreel.toml");
      const server = await Server.start(undefined, { flags: ["--config", config, "--cors-origin", page_url] });
      try {
        await use(server);
      } finally {
        await server.remove();
      }
    },
    { timeout: startAndStop_ms },
  ],
});

test("useChat goes on through a reload, a question and a killed server, each word once; and stops the run", async ({
  page,
  page_url,
  server,
}) => {
  const port = new URL(page_url).port;
  const words: [string, ...string[]] = [process.execPath, "start.mjs"];
  const program = await Program.start(words, "ai-sdk", page_url, { VITE_RUNREEL_URL: server.url, PORT: port });
  try {
    await page.goto(page_url);
    const send = page.getByRole("button", { name: "Send" });
    await send.click();
    await expect(page.getByText("I cannot know")).toBeVisible();
    await page.reload();
    await expect(page.locator("article.user")).toHaveText("Which year is it?");
    const question = page.getByRole("group", { name: "Run date +%Y?" });
    await expect(question).toBeVisible();
    await expect(page.getByText("May I ask this machine for it?")).toHaveCount(1);
    await page.reload();
    await expect(question).toBeVisible();
    await question.getByRole("button", { name: "Yes" }).click();
    const answer = page.getByText(/^The year is \d{4}/);
    await expect(answer).toBeVisible();
    await server.kill();
    await server.up();
    await expect(answer).toHaveText(/^The year is \d{4} and this sentence .* by a network that fails\.$/);
    await expect(page.getByRole("status")).toHaveText("ready");
    await expect(page.getByText(/sentence is long enough/)).toHaveCount(1);
    await expect(page.locator("article")).toHaveCount(2);

    await send.click();
    await expect(page.getByText("I cannot know")).toHaveCount(2);
    await page.getByRole("button", { name: "Stop" }).click();
    await expect(page.getByRole("status")).toHaveText("ready");
    const runs = await fetch(`${server.url}/api/runs?agent=guide`);
    const statuses = ((await runs.json()) as { runs: { status: string }[] }).runs.map(({ status }) => status);
    expect(statuses).toEqual(["cancelled", "completed"]);
  } finally {
    await program.stop();
  }
});
