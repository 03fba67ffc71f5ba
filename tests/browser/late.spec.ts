import { expect, test } from "./fixtures.ts";
import { expectEvents, expectState, upTo } from "./page.ts";

test("what is known of a long run is shown at once, and how much of it has been read", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Long and over" });
  for (const from of [0, 1, 2, 3])
    await producer.emit(
      run_id,
      ...upTo(2_000).map((n) => ({ type: "log.info", payload: { message: `line ${from * 2_000 + n}` } })),
    );
  const { last_seq } = await producer.emit(run_id, { type: "run.completed", payload: { output: "all of it" } });
  // The way is slow: the pages before the newest one are held back.
  let release = () => {};
  const held = new Promise<void>((released) => (release = released));
  await page.route(/view=index.*before=/, async (route) => {
    await held;
    await route.continue();
  });
  await page.goto(`${server.url}/runs/${run_id}?tab=log`);
  await expect(page.locator("header .badge").first()).toHaveText("completed");
  await expect(page.locator("[data-duration]")).not.toHaveText("not started");
  await expect(page).toHaveTitle("✓ Long and over · Runreel");
  await expect(page.getByRole("region", { name: "The answer" })).toContainText("all of it");
  await expect(page.getByRole("button", { name: "Cancel run" })).toHaveCount(0);
  await expect(page.locator("header")).toContainText(`of ${last_seq.toLocaleString("en")} events`);
  release();
  await expectEvents(page, last_seq);
  await expect(page.locator('[data-seq="1"]')).toBeInViewport();
});

test("a run that goes on is read from its end, and what comes before it moves nothing that is read", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Long and going on" });
  for (const from of [0, 1, 2])
    await producer.emit(
      run_id,
      ...upTo(2_000).map((n) => ({ type: "log.info", payload: { message: `line ${from * 2_000 + n}` } })),
    );
  const last = await producer.lastSeq(run_id);
  let release = () => {};
  const held = new Promise<void>((released) => (release = released));
  await page.route(/view=index.*before=/, async (route) => {
    await held;
    await route.continue();
  });
  await page.goto(`${server.url}/runs/${run_id}?tab=log`);
  await expect(page.locator(`[data-seq="${last}"]`)).toBeInViewport();
  await page.getByRole("grid").hover();
  await page.mouse.wheel(0, -1500);
  await expect(page.getByRole("button", { name: "Follow", exact: true })).toBeVisible();
  const read = page.locator("[data-seq]").nth(12);
  const seq = await read.getAttribute("data-seq");
  const place = () => page.locator(`[data-seq="${seq}"]`).evaluate((row) => row.getBoundingClientRect().top);
  const before = await place();
  release();
  await expectEvents(page, last);
  await expect.poll(place).toBe(before);
});

test("a run that its producer tells of late is drawn where it happened, and took as long as it did", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Told late" });
  const start_ms = Date.now() - 60_000;
  const at = (ms: number) => new Date(start_ms + ms).toISOString();
  await producer.emit(
    run_id,
    { type: "tool.started", span_id: "t1", at: at(0), payload: { name: "first" } },
    { type: "tool.completed", span_id: "t1", at: at(10_000), payload: {} },
    { type: "tool.started", span_id: "t2", at: at(10_000), payload: { name: "second" } },
    { type: "tool.completed", span_id: "t2", at: at(20_000), payload: {} },
    { type: "run.completed", at: at(20_000) },
  );
  await page.goto(`${server.url}/runs/${run_id}`);
  await expect(page.locator("[data-duration]")).toHaveText("20.0 s");
  const bar = (name: string) =>
    page
      .getByRole("treegrid")
      .getByRole("row")
      .filter({ hasText: name })
      .locator(".bar")
      .evaluate((each) => {
        const lane = each.parentElement!.getBoundingClientRect();
        const { left, width } = each.getBoundingClientRect();
        return [(left - lane.left) / lane.width, width / lane.width];
      });
  expect((await bar("first")).map((part) => part.toFixed(1))).toEqual(["0.0", "0.5"]);
  expect((await bar("second")).map((part) => part.toFixed(1))).toEqual(["0.5", "0.5"]);
});

test("a run that waits to be started has no bar and no time", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Queued", start: false });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  await expect(page.locator("header .badge").first()).toHaveText("queued");
  await expect(page.locator("[data-duration]")).toHaveText("not started");
  const row = page.getByRole("treegrid").locator("[aria-level]").first();
  await expect(row.locator(".took")).toHaveText("–");
  expect(await row.locator(".bar").evaluate((bar) => bar.getBoundingClientRect().width)).toBeLessThan(5);
  await producer.emit(run_id, { type: "run.started" });
  await expect(page.locator("[data-duration]")).not.toHaveText("not started");
});
