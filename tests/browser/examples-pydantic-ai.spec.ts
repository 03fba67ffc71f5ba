import { expect, test as base } from "@playwright/test";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { freePort, Program, python } from "./programs.ts";
import { Server, startAndStop_ms } from "./server.ts";

const folder = resolve(import.meta.dirname, "../../examples/pydantic-ai-proxy");
const test = base.extend<{ page_url: string; server: Server }>({
  page_url: async ({}, use) => use(`http://127.0.0.1:${await freePort()}`),
  server: [
    async ({ page_url }, use) => {
      const own = await mkdtemp(join(tmpdir(), "runreel-example-"));
      const config = join(own, "runreel.toml");
      // The example's own, but for the port.
      const written = await readFile(join(folder, "runreel.toml"), "utf8");
      await writeFile(config, written.replace("http://127.0.0.1:8000", page_url));
      const flags = ["--config", config, "--cors-origin", page_url, "--lease-ms", "1000"];
      const server = await Server.start(undefined, { flags });
      try {
        await use(server);
      } finally {
        await server.remove();
        await rm(own, { recursive: true });
      }
    },
    { timeout: startAndStop_ms },
  ],
});

test("an agent behind the proxy is followed through a reload and a killed server, and its answer is there once", async ({
  page,
  page_url,
  server,
}) => {
  const port = new URL(page_url).port;
  const agent = await Program.start([python, "agent.py"], "pydantic-ai-proxy", page_url, { PORT: port });
  try {
    await page.goto(`${page_url}/?server=${server.url}`);
    await page.getByRole("button", { name: "Ask" }).click();
    await expect(page.locator("p.user")).toHaveText("A weekend in Rome");
    await expect(page.locator("p.tool")).toContainText("20:05 to Rome, 79 euros");
    const answer = page.locator("p.assistant:not(:empty)");
    await expect(answer).toContainText("The night train leaves");
    expect(await answer.textContent()).not.toContain("when the bars open.");
    await page.reload();
    await expect(answer).toContainText("The night train leaves");
    await server.kill();
    await server.up();
    const whole = "The night train leaves at 20:05, has a bed for 79 euros, and arrives in Rome when the bars open.";
    await expect(answer).toHaveText([whole]);
    await expect(page.getByRole("status")).toHaveText("completed");
    await expect(page.locator("p.tool")).toHaveCount(1);
    await page.reload();
    await expect(answer).toHaveText([whole]);
    await expect(page.locator("p.user")).toHaveCount(1);
  } finally {
    await agent.stop();
  }
});
