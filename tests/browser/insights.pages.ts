import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import type { Producer } from "./producer.ts";
import { tripRun } from "./trip.ts";

const figure = (page: Page, name: string) => page.locator("dl div").filter({ has: page.getByText(name, { exact: true }) });

async function week(producer: Producer): Promise<void> {
  await tripRun(producer, true);
  const failed = await producer.createRun({ title: "Import the catalogue", agent: "importer" });
  await producer.emit(failed, {
    type: "message.completed",
    payload: { role: "assistant", text: "no", model: "gpt-4o", usage: { input_tokens: 1_000, output_tokens: 200 } },
  });
  await producer.emit(failed, {
    type: "run.failed",
    payload: { error: { code: "no_file", message: "a file is missing" } },
  });
  const asked = await producer.createRun({ title: "Tidy up", agent: "janitor" });
  await producer.emit(
    asked,
    { type: "interrupt.requested", span_id: "i1", payload: { kind: "approval", prompt: "Delete it?" } },
    { type: "run.interrupted" },
  );
}

test("the figures of a period and of an agent are those of its runs", async ({ page, server, producer }) => {
  await week(producer);
  await page.goto(`${server.url}/insights`);
  await expect(figure(page, "Runs")).toContainText("3");
  await expect(figure(page, "Runs")).toContainText("1 open");
  await expect(figure(page, "Failed")).toContainText("50.0 % of the ended");
  await expect(figure(page, "Tokens")).toContainText("1.81K in, 241 out");
  // 1 000 and 200 tokens of one model have a price; the other call names no model.
  await expect(figure(page, "Cost")).toContainText("$0.0045");
  await expect(figure(page, "Cost")).toContainText("some prices are unknown");
  await expect(figure(page, "Wait for people")).toContainText("1");
  await expect(page.getByRole("region", { name: "What fails", exact: true })).toContainText("no_file");
  await expect(page.getByRole("region", { name: "The slowest tools", exact: true })).toContainText("search_flights");
  await expect(page.getByRole("region", { name: "Silent for ten minutes", exact: true })).toContainText(
    "Every open run has been heard of.",
  );

  await page.getByLabel("Agent", { exact: true }).selectOption("importer");
  await expect(page).toHaveURL(/agent=importer/);
  await expect(figure(page, "Runs")).toContainText("1");
  await expect(page.getByRole("region", { name: "The slowest tools", exact: true })).toContainText("No tool was called.");
  await page.getByLabel("Period").selectOption("last day");
  await expect(page.getByRole("group", { name: "Runs by hour" })).toBeVisible();
  await page.reload();
  await expect(page.getByRole("group", { name: "Runs by hour" })).toBeVisible();
  await expect(page.getByLabel("Agent", { exact: true })).toHaveValue("importer");

  // What is shown can be asked further.
  await page.getByRole("link", { name: /Open in SQL.*What fails/ }).click();
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.locator("[data-rows]")).toHaveAttribute("data-rows", "1");
  await expect(page.getByLabel("Query")).toHaveValue(/agent = 'importer'[^]*interval '24 hours'/);
});

test("an empty log says that it is empty, and a log that grows is read again while it is seen", async ({
  page,
  server,
  producer,
}) => {
  await page.clock.install();
  await page.goto(`${server.url}/insights`);
  await expect(page.getByText("No runs in this period.")).toBeVisible();
  await expect(figure(page, "Cost")).toContainText("unknown");
  await expect(figure(page, "Silent")).toContainText("0");
  await producer.createRun({ agent: "planner" });
  await expect(async () => {
    await page.clock.fastForward(31_000);
    await expect(figure(page, "Runs")).toContainText("1 open", { timeout: 1_000 });
  }).toPass();
});
