import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { upTo } from "./page.ts";
import type { Producer } from "./producer.ts";

const hour_ms = 3_600_000;
const ago = (ms: number) => new Date(Date.now() - ms).toISOString();

/** The index is filled in the background: the words are found when it has them. */
async function expectIndexed(producer: Producer, q: string, count: number): Promise<void> {
  const found = async () => {
    const response = await fetch(`${producer.url()}/api/runs?q=${encodeURIComponent(q)}`);
    return ((await response.json()) as { runs: unknown[] }).runs.length;
  };
  await expect.poll(found).toBe(count);
}

test("words are searched for in everything that happened, and the row shows where they are", async ({
  page,
  server,
  producer,
}) => {
  const parent_run_id = await producer.createRun({ title: "Close the month", role: "supervisor" });
  const run_id = await producer.createRun({ title: "Import", role: "worker", parent_run_id });
  const error = { message: "429 Too Many Requests from ledger.example" };
  await producer.emit(
    run_id,
    { type: "tool.started", span_id: "t1", payload: { name: "fetch_invoices" } },
    { type: "tool.failed", span_id: "t1", payload: { name: "fetch_invoices", error } },
  );
  await expectIndexed(producer, "ledger", 1);
  await page.goto(server.url);
  await expect(page.locator("[data-run]")).toHaveCount(1);
  await page.keyboard.press("/");
  await page.keyboard.type("too many ledg");
  // It is below another run, where nobody has to look for it.
  const row = page.locator(`[data-run="${run_id}"]`);
  await expect(row.locator("mark")).toHaveText(["Too", "Many", "ledg"]);
  await expect(page.locator("[data-run]")).toHaveCount(1);
  expect(await violations(page)).toEqual([]);
  await row.getByRole("link", { name: /tool\.failed/ }).click();
  await expect(page).toHaveURL(`${server.url}/runs/${run_id}?tab=log&sel=4`);
  await page.goBack();
  await expect(page.getByLabel("Search runs")).toHaveValue("too many ledg");
  await page.getByLabel("Search runs").fill("nobody wrote this");
  await expect(page.getByText("No run matches.")).toBeVisible();
});

test("a stretch of the histogram is a filter, drawn with the pointer or chosen with the keys", async ({
  page,
  server,
  producer,
}) => {
  for (const n of upTo(3)) await producer.createRun({ title: `Yesterday ${n}`, at: ago(20 * hour_ms) });
  const failed = await producer.createRun({ title: "Now" });
  await producer.emit(failed, { type: "run.failed" });
  await page.goto(server.url);
  const rows = page.locator("[data-run]");
  const histogram = page.getByRole("slider", { name: "Runs over time" });
  await expect(rows).toHaveCount(4);
  await expect(histogram.locator("rect")).toHaveCount(2);
  const box = (await histogram.boundingBox())!;
  await page.mouse.move(box.x + 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.up();
  await expect(rows).toHaveCount(3);
  const { searchParams } = new URL(page.url());
  expect(Date.parse(searchParams.get("until")!) - Date.parse(searchParams.get("since")!)).toBeGreaterThan(8 * hour_ms);
  await page.reload();
  await expect(rows).toHaveCount(3);
  await page.getByRole("button", { name: /^Remove created/ }).click();
  await expect(rows).toHaveCount(4);
  await expect(histogram.locator("rect")).toHaveCount(2);
  await histogram.focus();
  await page.keyboard.press("End");
  // Another bar may have begun since the run did.
  if (/no runs/.test((await histogram.getAttribute("aria-valuetext"))!)) await page.keyboard.press("ArrowLeft");
  await expect(histogram).toHaveAttribute("aria-valuetext", /1 failed/);
  await page.keyboard.press("Enter");
  await expect(rows).toHaveCount(1);
  // The statuses are its legend: they say how many, and are filters too.
  const statuses = page.getByRole("group", { name: "Status" });
  await expect(statuses.getByRole("button", { name: "failed" })).toContainText("1");
});

test("filters are added from a menu, changed at their chips, and survive a reload", async ({
  page,
  server,
  producer,
}) => {
  const long = await producer.createRun({ title: "Long", agent: "My, agent", at: ago(hour_ms) });
  await producer.emit(long, { type: "run.completed" });
  const short = await producer.createRun({ title: "Short", agent: "other" });
  await producer.emit(short, { type: "run.completed" });
  await page.goto(server.url);
  const rows = page.locator("[data-run]");
  await expect(rows).toHaveCount(2);
  const add = page.getByRole("button", { name: "+ Filter" });
  await add.click();
  await page.getByRole("button", { name: "duration", exact: true }).click();
  await page.getByRole("textbox", { name: "at least" }).fill("soon");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("alert")).toContainText("30 s");
  expect(await violations(page)).toEqual([]);
  await page.getByRole("textbox", { name: "at least" }).fill("1 m 30 s");
  await page.keyboard.press("Enter");
  await expect(rows).toHaveCount(1);
  await expect(rows).toContainText("Long");
  await page.reload();
  await expect(rows).toHaveCount(1);
  await page.getByRole("button", { name: "duration: at least 1 m 30 s", exact: true }).click();
  await page.getByRole("textbox", { name: "at least" }).fill("3 h");
  await page.keyboard.press("Enter");
  await expect(rows).toHaveCount(0);
  await page.getByRole("button", { name: "Show all" }).click();
  await expect(rows).toHaveCount(2);
  // A name with a comma is one name.
  await add.click();
  await page.getByRole("button", { name: "agent", exact: true }).click();
  await expect(page.locator("datalist option")).toHaveCount(2);
  await page.keyboard.press("Escape");
  await expect(add).toBeFocused();
  await page.getByRole("button", { name: "My, agent" }).click();
  await expect(rows).toHaveCount(1);
  await expect(page.getByText("agent: My, agent")).toBeVisible();
});

test("a view that was saved is in the menu of another tab, and can be removed", async ({
  page,
  context,
  server,
  producer,
}) => {
  const failed = await producer.createRun({ title: "Broken" });
  await producer.emit(failed, { type: "run.failed" });
  await producer.createRun({ title: "Fine" });
  await page.goto(`${server.url}/?status=failed&sort=events`);
  await page.getByRole("button", { name: "Views" }).click();
  await page.getByLabel("This list as").fill("What broke");
  await page.keyboard.press("Enter");

  const other = await context.newPage();
  await other.goto(server.url);
  await expect(other.locator("[data-run]")).toHaveCount(2);
  await other.getByRole("button", { name: "Views" }).click();
  await other.getByRole("button", { name: "What broke", exact: true }).click();
  await expect(other.locator("[data-run]")).toHaveCount(1);
  await expect(other).toHaveURL(`${server.url}/?status=failed&sort=events`);
  await other.goBack();
  await expect(other.locator("[data-run]")).toHaveCount(2);
  await other.getByRole("button", { name: "Views" }).click();
  await other.getByRole("button", { name: "Remove What broke" }).click();
  await expect(other.getByRole("button", { name: "What broke", exact: true })).toHaveCount(0);
});

test.describe("with an address that somebody broke", () => {
  test.use({ allowsStatus: [400] });

  test("the page says what is wrong with a filter, and the way out", async ({ page, server, producer }) => {
    await producer.createRun({ title: "First" });
    await page.goto(`${server.url}/?since=nonsense`);
    await expect(page.getByRole("alert")).toContainText("(since)");
    await page.getByRole("link", { name: "Show all runs" }).click();
    await expect(page.locator("[data-run]")).toHaveCount(1);
    await expect(page.getByRole("alert")).toHaveCount(0);
  });
});
