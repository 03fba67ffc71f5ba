import { expect, test as base } from "@playwright/test";
import { freePort, Program, python } from "./programs.ts";
import { Server, startAndStop_ms } from "./server.ts";

const test = base.extend<{ page_url: string; server: Server }>({
  page_url: async ({}, use) => use(`http://127.0.0.1:${await freePort()}`),
  server: [
    async ({ page_url }, use) => {
      const server = await Server.start(undefined, { flags: ["--cors-origin", page_url] });
      try {
        await use(server);
      } finally {
        await server.remove();
      }
    },
    { timeout: startAndStop_ms },
  ],
});

test("a LangGraph agent is followed in a React page, through a reload and a killed server, and asks before it books", async ({
  page,
  page_url,
  server,
}) => {
  const port = new URL(page_url).port;
  const words: [string, ...string[]] = [python, "agent.py"];
  const agent = await Program.start(words, "langgraph-react", page_url, { RUNREEL_URL: server.url, PORT: port });
  try {
    await page.goto(page_url);
    await page.getByRole("button", { name: "Ask" }).click();
    await expect(page.getByText("A trip to Rome, please.")).toBeVisible();
    await expect(page.getByText("a bed for 79 euros.")).toBeVisible();
    const question = page.getByRole("group", { name: "Book the night train for 79 euros?" });
    await expect(question).toBeVisible();
    await expect(page.getByRole("status")).toContainText("interrupted");
    await page.reload();
    await expect(question).toBeVisible();
    await server.kill();
    await server.up();
    await question.getByRole("button", { name: "Yes" }).click();
    await expect(page.getByText("Done. Your bed is number 21, and breakfast is at seven.")).toBeVisible();
    await expect(page.getByRole("status")).toContainText("completed");
    await expect(question).toBeHidden();
    const said = await page.locator("p:not(.state)").allTextContents();
    expect(said.map((text) => text.trim())).toEqual([...new Set(said.map((text) => text.trim()))]);
  } finally {
    await agent.stop();
  }
});
