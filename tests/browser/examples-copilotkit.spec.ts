import { expect, test as base } from "@playwright/test";
import { freePort, Program } from "./programs.ts";
import { Server, startAndStop_ms } from "./server.ts";

const test = base.extend<{ server: Server }>({
  server: [
    async ({}, use) => {
      const server = await Server.start();
      try {
        await use(server);
      } finally {
        await server.remove();
      }
    },
    { timeout: startAndStop_ms },
  ],
});

test("CopilotKit's chat goes on through a reload, and its thread through a runtime that is killed", async ({ page, server }) => {
  test.setTimeout(120_000);
  const page_url = `http://127.0.0.1:${await freePort()}`;
  const words: [string, ...string[]] = [process.execPath, "start.mjs"];
  const env = { RUNREEL_URL: server.url, PORT: new URL(page_url).port, COPILOTKIT_TELEMETRY_DISABLED: "true" };
  let runtime = await Program.start(words, "copilotkit", page_url, env);
  const question = page.getByText("How do I get to Rome?");
  const answer = page.getByText(/^The night train leaves at 20:05/);
  const whole = /^The night train leaves .* when the bars open\.$/;
  try {
    await page.goto(page_url);
    const box = page.getByRole("textbox");
    await box.fill("How do I get to Rome?");
    await box.press("Enter");
    await expect(answer).toBeVisible();
    expect(await answer.textContent()).not.toMatch(whole);
    await page.reload();
    await expect(question).toBeVisible();
    await expect(answer).toBeVisible();
    await expect(answer).toHaveText(whole);
    const statuses = async () => {
      const runs = await fetch(`${server.url}/api/runs?agent=guide`);
      return ((await runs.json()) as { runs: { status: string }[] }).runs.map(({ status }) => status);
    };
    await expect.poll(statuses).toEqual(["completed"]);
    await runtime.stop();
    runtime = await Program.start(words, "copilotkit", page_url, env);
    await page.reload();
    await expect(answer).toHaveText(whole);
    await expect(question).toHaveCount(1);
    await expect(answer).toHaveCount(1);
  } finally {
    await runtime.stop();
  }
});
