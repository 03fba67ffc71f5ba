import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";
import type { NewEvent } from "./producer.ts";

const said = (span_id: string, model: string, usage?: Record<string, number>): NewEvent => ({
  type: "message.completed",
  span_id,
  payload: { role: "assistant", content: `said by ${model}`, model, ...(usage && { usage }) },
});

test("tokens and cost are told for the run and for each call, and what is not known is not 0", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Spend" });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  const header = page.locator("header");
  await expect(header).toContainText("2 events");
  await expect(header).not.toContainText("tokens");
  await expect(header).not.toContainText("$");

  // 600 × $2.50 and 150 × $10 a million.
  await producer.emit(run_id, said("m1", "gpt-4o", { input_tokens: 600, output_tokens: 150 }));
  await expect(header).toContainText("600 tokens in, 150 out");
  await expect(header.locator("[data-cost]")).toHaveText("$0.0030");
  await producer.emit(run_id, said("m2", "nobody-sells-this", { input_tokens: 10, output_tokens: 5 }));
  await expect(header).toContainText("610 tokens in, 155 out");
  await expect(header.locator("[data-cost]")).toHaveText(/\$0\.0030\sand more/);
  expect(await violations(page)).toEqual([]);

  const spent = page.getByRole("complementary").getByRole("region", { name: "Tokens and cost" });
  const row = (text: string) => page.getByRole("treegrid").getByRole("row").filter({ hasText: text });
  await row("said by gpt-4o").click();
  await expect(spent).toContainText("$0.0030");
  await expect(spent).toContainText("600");
  await row("said by nobody").click();
  await expect(spent).toContainText("unknown");
  await expect(spent).not.toContainText("$0");
});

test("a run whose prices are not known has a cost that is unknown; its tree's runs are counted too", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Unknown" });
  const child = await producer.createRun({ title: "Below", parent_run_id: run_id });
  await producer.emit(run_id, said("m1", "nobody-sells-this", { input_tokens: 10, output_tokens: 5 }));
  await producer.emit(child, said("m1", "gpt-4o", { input_tokens: 600, output_tokens: 150 }));
  await page.goto(`${server.url}/runs/${run_id}`);
  const header = page.locator("header");
  await expect(header.locator("[data-cost]")).toHaveText("cost unknown");
  await expect(header).toContainText(/2 runs: \$0\.0030/);
});
