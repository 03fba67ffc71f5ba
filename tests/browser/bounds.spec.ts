import type { Page } from "@playwright/test";
import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectEvents, expectRuns, expectState, upTo } from "./page.ts";

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
  await expect(page.getByTitle(/ idle, not drawn to scale$/)).toHaveCount(4);
  const list = page.getByRole("treegrid", { name: "Spans of the run" });
  for (const name of ["tool 3", "tool 170", "tool 348"]) {
    await list.evaluate((box, row) => (box.scrollTop = row * 28 - 200), Number(name.slice(5)));
    await expect(list.getByRole("row", { name: new RegExp(`${name} `) })).toBeVisible();
    expect(await elements(page)).toBeLessThanOrEqual(600);
  }
});

test("a list of a thousand runs is drawn as far as it is seen, is walked with the keys, and found again as it was left", async ({
  page,
  server,
  producer,
}) => {
  const runs = 1_000;
  for (let n = 1; n <= runs; n += 50)
    await Promise.all(upTo(50).map((at) => producer.createRun({ title: `Run ${n + at - 1}`, agent: "reporter" })));
  await page.goto(server.url);
  await expectState(page, "live");
  const list = page.getByRole("region", { name: "List of runs" });
  for (let shown = 50; ; shown += 50) {
    await expectRuns(page, shown);
    if (shown === runs) break;
    await page.getByRole("button", { name: "Older runs" }).click();
  }
  for (const top of [0, 12_345, 40_000]) {
    await list.evaluate((box, top) => (box.scrollTop = top), top);
    const row = list.getByRole("row").and(page.locator(`[aria-rowindex="${Math.ceil(top / 40) + 5}"]`));
    await expect(row.or(list.locator('[aria-rowindex="1001"]')).first()).toBeInViewport();
    expect(await elements(page)).toBeLessThanOrEqual(1_000);
  }
  expect(await violations(page)).toEqual([]);

  // To the last but two, and up from there.
  for (const _ of upTo(3)) await page.keyboard.press("k");
  const focused = page.locator("[data-run]:focus-within");
  await expect(focused).toHaveAttribute("aria-rowindex", "999");
  await expect(focused).toBeInViewport();
  const top = await list.evaluate((box) => box.scrollTop);
  const title = await focused.getByRole("link").innerText();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: title, exact: true })).toBeVisible();
  await page.goBack();
  await expectRuns(page, runs);
  await expect(list.getByRole("link", { name: title, exact: true })).toBeInViewport();
  expect(await list.evaluate((box) => box.scrollTop)).toBe(top);
  await page.keyboard.press("j");
  await expect(focused).toHaveAttribute("aria-rowindex", "1000");
});
