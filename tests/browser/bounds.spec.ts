import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import { expectEvents, upTo } from "./page.ts";

const elements = (page: Page) => page.evaluate(() => document.querySelectorAll("*").length);

test("the timeline of a long run has at most 600 elements, with its pauses cut out and wherever it is scrolled to", async ({
  page,
  server,
  producer,
}) => {
  const start_ms = Date.now() - 7_200_000;
  const run_id = await producer.createRun({ title: "Long run", at: new Date(start_ms).toISOString() });
  // Every hundredth call comes half an hour later.
  const at = (n: number) => new Date(start_ms + Math.floor(n / 100) * 1_800_000 + (n % 100) * 100).toISOString();
  const call = (n: number) => [
    { type: "tool.started", span_id: `t${n}`, at: at(n), payload: { name: `tool ${n}`, args: { n } } },
    { type: "tool.completed", span_id: `t${n}`, at: at(n), payload: { result: "ok" } },
  ];
  await producer.emit(run_id, ...upTo(350).flatMap(call));
  const { last_seq } = await producer.emit(run_id, { type: "run.completed" });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectEvents(page, last_seq);
  await expect(page.getByTitle(/^Nothing happened for/)).toHaveCount(4);
  const list = page.getByRole("treegrid", { name: "Spans of the run" });
  for (const name of ["tool 3", "tool 170", "tool 348"]) {
    await list.evaluate((box, row) => (box.scrollTop = row * 28 - 200), Number(name.slice(5)));
    await expect(list.getByRole("row", { name: new RegExp(`${name} `) })).toBeVisible();
    expect(await elements(page)).toBeLessThanOrEqual(600);
  }
});
