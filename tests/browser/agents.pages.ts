import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect } from "./fixtures.ts";
import { binary } from "./server.ts";
import { test } from "./stock.ts";

const again_ms = 6_000;

test("agents, runners, what waits and who holds what stand on one page", async ({ page, server, producer }) => {
  await page.clock.install();
  await producer.createRun({ title: "Left behind", agent: "nobody", start: false });
  await page.goto(`${server.url}/agents`);
  const agent = (name: string) => page.locator(`[data-agent=${name}]`);
  await expect(agent("echo")).toContainText("the server (assistant)");
  await expect(agent("nobody")).toContainText("nobody who is connected here");
  await expect(agent("nobody").getByRole("link", { name: "1", exact: true })).toHaveAttribute(
    "href",
    "/?agent=nobody&status=queued",
  );
  await expect(page.getByText("No runner is connected")).toBeVisible();

  await producer.createRun({ title: "Mend it", agent: "coder", start: false });
  const words = ["runner", "--url", server.url, "--agent", "coder", "--name", "bench", "--grace", "0", "--exec", "sleep 600"];
  const runner = spawn(binary, words, { stdio: "ignore" });
  try {
    await expect(async () => {
      await page.clock.fastForward(again_ms);
      await expect(page.locator("[data-runner=bench]")).toBeVisible({ timeout: 500 });
      await expect(page.locator("tr[data-run]")).toContainText("bench", { timeout: 500 });
    }).toPass();
    await expect(agent("coder")).toContainText("bench");
    await page.getByRole("link", { name: "Mend it" }).click();
    await expect(page.getByRole("heading", { name: "Mend it" })).toBeVisible();
  } finally {
    const ended = once(runner, "exit");
    runner.kill("SIGTERM");
    await ended;
  }
});

test("settings tell who asks and how long runs stay, and change how the pages look", async ({ page, server }) => {
  await page.goto(`${server.url}/settings`);
  await expect(page.locator("[data-health]")).toHaveAttribute("data-health", "ok");
  await expect(page.getByRole("region", { name: "You" })).toContainText("do everything");
  await expect(page.getByRole("region", { name: "Retention" })).toContainText("for ever");
  await expect(page.getByRole("region", { name: "About" })).toContainText(/Runreel \d/);
  await page.getByLabel("Theme", { exact: true }).selectOption("dark");
  await page.getByLabel("Rows", { exact: true }).selectOption("comfortable");
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("data-density", "comfortable");
  await page.getByRole("link", { name: "API tokens" }).click();
  await expect(page.getByText("No API tokens.")).toBeVisible();
  await expect(page.getByRole("link", { name: "Settings" })).toHaveAttribute("aria-current", "page");
});
