import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState, upTo } from "./page.ts";
import type { NewEvent, Producer } from "./producer.ts";

/** Ten seconds: a long call, and around it brief ones and notes of the program. */
async function noisyRun(producer: Producer): Promise<string> {
  const start_ms = Date.now() - 20_000;
  const at = (ms: number) => new Date(start_ms + ms).toISOString();
  const run_id = await producer.createRun({ title: "Nightly report", agent: "reporter", at: at(0) });
  const call = (id: string, from: number, took: number, end: "completed" | "failed" = "completed"): NewEvent[] => [
    { type: "tool.started", span_id: id, at: at(from), payload: { name: id, args: { n: 1 } } },
    { type: `tool.${end}`, span_id: id, at: at(from + took), payload: { name: id, result: "ok" } },
  ];
  const note = (n: number): NewEvent => ({
    type: "log.debug",
    at: at(900 + n),
    payload: { message: `cache miss ${n}` },
  });
  await producer.emit(
    run_id,
    ...upTo(5).flatMap((n) => call(`lookup_${n}`, n * 100, 10)),
    ...upTo(12).map(note),
    { type: "log.warn", at: at(950), payload: { message: "the cache is cold" } },
    ...call("render", 1_000, 8_000),
    ...call("upload", 9_100, 10, "failed"),
    { type: "run.completed", at: at(10_000) },
  );
  return run_id;
}

test("what is unimportant is folded into a row that says how much, and is opened with the pointer or the keys", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await noisyRun(producer);
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "ended");
  const spans = page.getByRole("treegrid").getByRole("row");
  await expect(spans).toHaveCount(9);
  await page.getByRole("button", { name: "Fold", exact: true }).click();
  await expect(page).toHaveURL(`${server.url}/runs/${run_id}?fold=1`);
  await expect(spans).toHaveCount(5);
  const stretch = spans.filter({ hasText: "5 folded" });
  await expect(stretch).toContainText("lookup_1, lookup_2, lookup_3 …");
  await expect(stretch).toContainText("50 ms");
  // A failure is never unimportant.
  await expect(spans.last()).toContainText("upload");
  expect(await violations(page)).toEqual([]);
  await stretch.click();
  await expect(spans).toHaveCount(10);
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await expect(page.getByRole("row", { selected: true })).toContainText("lookup_1");
  await stretch.click();
  await expect(spans).toHaveCount(5);

  // Rows out of sight are not drawn.
  await page.setViewportSize({ width: 1280, height: 1_200 });
  await page.getByRole("tab", { name: "Log" }).click();
  const events = page.getByRole("grid", { name: "Events of the run" }).getByRole("row");
  const minor = events.filter({ hasText: "12 folded" });
  await expect(minor).toContainText("log.debug");
  await expect(events.filter({ hasText: "log.warn" })).toHaveCount(1);
  await expect(events).toHaveCount(1 + 19);
  expect(await violations(page)).toEqual([]);
  await minor.getByRole("button").focus();
  await page.keyboard.press("Enter");
  await expect(events).toHaveCount(1 + 31);
  await events.filter({ hasText: "cache miss 3" }).click();
  await page.keyboard.press("ArrowLeft");
  await expect(events).toHaveCount(1 + 19);
  await expect(page.getByRole("row", { selected: true })).toContainText("12 folded");
  await page.keyboard.press("ArrowRight");
  await expect(page.getByRole("row", { selected: true })).toContainText("cache miss 3");
  // What is searched for is found wherever it is.
  await page.keyboard.press("z");
  await expect(events.filter({ hasText: "folded" })).toHaveCount(0);
  await page.keyboard.press("z");
  await page.getByLabel("Search in this run").fill("miss 7");
  await expect(events.filter({ hasText: "cache miss 7" })).toHaveCount(1);
});

test("n and N lead from hit to hit, g g and G to the ends, on the timeline and in the log", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Look around" });
  const call = (n: number): NewEvent[] => [
    { type: "step.started", span_id: `s${n}`, payload: { name: `step ${n}` } },
    { type: "tool.started", span_id: `t${n}`, parent_span_id: `s${n}`, payload: { name: n % 20 ? "fetch" : "search" } },
    { type: "tool.completed", span_id: `t${n}`, payload: { result: "ok" } },
    { type: "step.completed", span_id: `s${n}` },
  ];
  await producer.emit(run_id, ...upTo(60).flatMap(call), { type: "run.completed" });
  await page.goto(`${server.url}/runs/${run_id}?q=search`);
  await expectState(page, "ended");
  const selected = page.getByRole("row", { selected: true });
  // Its parents are shown too, and are no hits.
  await expect(page.getByRole("treegrid").getByRole("row")).toHaveCount(8);
  for (const [key, sel] of [
    ["n", 80],
    ["n", 160],
    ["N", 80],
    ["N", 240],
    ["n", 80],
  ] as const) {
    await page.keyboard.press(key);
    await expect(page).toHaveURL(new RegExp(`sel=${sel}(&|$)`));
    await expect(selected).toContainText("tool search");
  }
  await page.goto(`${server.url}/runs/${run_id}?tab=log&q=search`);
  await expectState(page, "ended");
  await page.keyboard.press("N");
  await expect(selected).toContainText("search");
  await expect(page).toHaveURL(/sel=240/);
  await page.goto(`${server.url}/runs/${run_id}?tab=log`);
  await expectState(page, "ended");
  await page.keyboard.press("n");
  await expect(selected).toHaveCount(0);
  await page.keyboard.press("G");
  await expect(page.locator('[data-seq="243"]')).toBeInViewport();
  await page.keyboard.press("g");
  await expect(page.locator('[data-seq="243"]')).toBeInViewport();
  await page.keyboard.press("g");
  await expect(page.locator('[data-seq="1"]')).toBeInViewport();
});
