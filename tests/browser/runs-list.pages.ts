import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectRuns, expectState, upTo } from "./page.ts";

test("rows stay in their place while runs begin above them, and the loaded pages stay", async ({
  page,
  server,
  producer,
}) => {
  for (const n of upTo(70)) await producer.createRun({ title: `Run ${n}` });
  await page.goto(server.url);
  const rows = page.locator("[data-run]");
  await page.getByRole("button", { name: "Older runs" }).click();
  await expectRuns(page, 70);
  await expectState(page, "live");
  const row = rows.filter({ hasText: "Run 31" });
  await page.getByRole("region", { name: "List of runs" }).evaluate((box) => (box.scrollTop = 35 * 40));
  await expect(row).toBeInViewport();
  const top = async () => (await row.boundingBox())!.y;
  const before = await top();
  for (const n of upTo(15)) await producer.createRun({ title: `New ${n}` });
  await expectRuns(page, 85);
  expect((await top()) - before).toBe(0);
  await page.getByRole("button", { name: "15 new" }).click();
  await expect(rows.first()).toBeInViewport();
  await expect(rows.first()).toContainText("New 15");
});

test("in another order rows stay where they are until somebody asks for the order of now", async ({
  page,
  server,
  producer,
}) => {
  const [one, two] = [await producer.createRun({ title: "One" }), await producer.createRun({ title: "Two" })];
  await producer.emit(two, { type: "log.info" }, { type: "log.info" });
  await page.goto(server.url);
  await expect(page.locator("[data-run]")).toHaveCount(2);
  await page.getByRole("button", { name: "Events" }).click();
  await expect(page).toHaveURL(`${server.url}/?sort=events`);
  await expect(page.getByRole("columnheader", { name: "Events" })).toHaveAttribute("aria-sort", "descending");
  const order = () => page.locator("[data-run]").evaluateAll((all) => all.map((row) => row.getAttribute("data-run")));
  await expect.poll(order).toEqual([two, one]);
  await expectState(page, "live");
  await producer.emit(one, ...upTo(5).map(() => ({ type: "log.info" })));
  await expect(page.locator(`[data-run="${one}"] [data-events]`)).toHaveText("7");
  const three = await producer.createRun({ title: "Three" });
  await page.getByRole("button", { name: "2 new or changed" }).click();
  await expect.poll(order).toEqual([one, two, three]);
  await page.getByRole("button", { name: "Events" }).click();
  await expect.poll(order).toEqual([three, two, one]);
});

test("the columns that somebody chose are there after a reload", async ({ page, server, producer }) => {
  await producer.createRun({ title: "Run", thread_id: "t-17" });
  await page.goto(server.url);
  await expect(page.getByRole("columnheader", { name: "Cost" })).toBeVisible();
  await page.getByRole("button", { name: "Columns" }).click();
  await page.getByRole("checkbox", { name: "Thread" }).click();
  await page.getByRole("checkbox", { name: "Cost" }).click();
  expect(await violations(page)).toEqual([]);
  await page.reload();
  await expect(page.getByRole("columnheader", { name: "Thread" })).toBeVisible();
  await expect(page.getByRole("columnheader", { name: "Cost" })).toHaveCount(0);
  await page.getByRole("button", { name: "t-17" }).click();
  await expect(page).toHaveURL(`${server.url}/?thread_id=t-17`);
});

test("runs are looked at beside the list with the keys, and what goes on is told there", async ({
  page,
  server,
  producer,
}) => {
  const failed = await producer.createRun({ title: "Import", agent: "importer", input: { month: "May" } });
  const error = { message: "429 from the ledger\nagain and again" };
  await producer.emit(failed, { type: "run.failed", payload: { error } });
  const going = await producer.createRun({ title: "Report" });
  await page.goto(server.url);
  await expect(page.locator("[data-run]")).toHaveCount(2);
  await expectState(page, "live");
  await page.keyboard.press("j");
  await expect(page.getByRole("link", { name: "Report" })).toBeFocused();
  await page.keyboard.press(" ");
  const look = page.getByRole("complementary", { name: "A look at the run" });
  await expect(look.getByRole("heading", { name: "Report" })).toBeVisible();
  await expect(look.getByRole("link", { name: /run\.created/ })).toBeVisible();
  await producer.emit(going, { type: "tool.started", span_id: "t", payload: { name: "count" } });
  await expect(look.getByRole("link", { name: /tool\.started/ })).toBeVisible();
  await page.keyboard.press("j");
  await expect(look).toContainText("again and again");
  await expect(look).toContainText("month");
  await expect(page).toHaveURL(new RegExp(`peek=${failed}`));
  expect(await violations(page)).toEqual([]);
  await page.reload();
  await expect(look.getByRole("heading", { name: "Import" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(look).toHaveCount(0);
});

test("on a phone the row that is looked at stays in sight", async ({ page, server, producer }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  for (const n of upTo(12)) await producer.createRun({ title: `Run ${n}` });
  await page.goto(server.url);
  const row = page.locator("[data-run]").filter({ hasText: "Run 3" });
  await row.locator(".status").click();
  const look = page.getByRole("complementary", { name: "A look at the run" });
  await expect(look.getByRole("heading", { name: "Run 3" })).toBeVisible();
  const list = page.getByRole("region", { name: "List of runs" });
  const isInside = async () => {
    const [one, all] = [(await row.boundingBox())!, (await list.boundingBox())!];
    return one.y >= all.y - 1 && one.y + one.height <= all.y + all.height + 1;
  };
  await expect.poll(isInside).toBe(true);
  expect(await violations(page)).toEqual([]);
});
