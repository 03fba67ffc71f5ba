import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectRuns, expectState, upTo } from "./page.ts";

const icon = "link[rel=icon]";

test("who comes back from a run finds the list as it was left", async ({ page, server, producer }) => {
  for (const n of upTo(70)) await producer.createRun({ title: `Run ${n}` });
  await page.goto(server.url);
  const rows = page.locator("[data-run]");
  await expectRuns(page, 50);
  await page.getByRole("button", { name: "Older runs" }).click();
  await expectRuns(page, 70);
  const list = page.getByRole("region", { name: "List of runs" });
  const link = page.getByRole("link", { name: "Run 7", exact: true });
  await list.evaluate((box) => (box.scrollTop = box.scrollHeight - 900));
  await link.click({ trial: true });
  const top = await list.evaluate((each) => each.scrollTop);
  expect(top).toBeGreaterThan(500);
  await link.click();
  await expect(page.getByRole("heading", { name: "Run 7" })).toBeVisible();
  await page.goBack();
  await expectRuns(page, 70);
  expect(await list.evaluate((each) => each.scrollTop)).toBe(top);
  // It is live again, and what began meanwhile comes to its top.
  await expectState(page, "live");
  await producer.createRun({ title: "Run 71" });
  await expectRuns(page, 71);
  await list.evaluate((box) => (box.scrollTop = 0));
  await expect(rows.first()).toContainText("Run 71");
});

test("the palette leads to pages, runs and commands with the keyboard alone", async ({ page, server, producer }) => {
  await producer.createRun({ title: "Weekend in Lisbon", agent: "planner" });
  await producer.createRun({ title: "Nightly report" });
  await page.goto(server.url);
  await page.keyboard.press("Control+k");
  const field = page.getByRole("combobox", { name: "Pages, runs and commands" });
  const options = page.getByRole("listbox", { name: "Choices" }).getByRole("option");
  await expect(field).toBeFocused();
  await page.keyboard.type("lisbon");
  await expect(options).toHaveCount(1);
  await expect(options.first()).toHaveAttribute("aria-selected", "true");
  expect(await violations(page)).toEqual([]);
  await field.press("Enter");
  await expect(page.getByRole("heading", { name: "Weekend in Lisbon" })).toBeVisible();

  await page.keyboard.press("Control+k");
  await expect(field).toBeFocused();
  await page.keyboard.type("comfort");
  await expect(options).toHaveCount(1);
  await page.keyboard.press("Enter");
  await expect(page.locator("html")).toHaveAttribute("data-density", "comfortable");
  await page.reload();
  await expect(page.locator("html")).toHaveAttribute("data-density", "comfortable");
  await page.keyboard.press("Control+k");
  await expect(field).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(`${server.url}/threads`);
  await page.keyboard.press("Control+k");
  await expect(field).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(field).toHaveCount(0);
});

test("title and icon of the browser's tab tell how the run goes", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Nightly report" });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expect(page).toHaveTitle("● Nightly report · Runreel");
  await expect(page.locator(icon)).toHaveAttribute("href", "/favicon-running.svg");
  await producer.emit(run_id, { type: "run.failed", payload: { error: { message: "no" } } });
  await expect(page).toHaveTitle("✕ Nightly report · Runreel");
  await expect(page.locator(icon)).toHaveAttribute("href", "/favicon-failed.svg");
  await page.getByRole("link", { name: "Runs", exact: true }).click();
  await expect(page).toHaveTitle("Runs · Runreel");
  await expect(page.locator(icon)).toHaveAttribute("href", "/favicon.svg");
});

test("a page that is left while it asks for something complains of nothing", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Nightly report", thread_id: "talk" });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  // Nobody answers what is asked for once more.
  let asked = 0;
  await page.route(/[/]api[/](runs|threads)[/][^/]+$/, () => void (asked += 1));
  await producer.emit(run_id, { type: "run.completed", payload: {} });
  await expect.poll(() => asked).toBe(1);
  await page.getByRole("link", { name: "Runs", exact: true }).click();
  await expect(page).toHaveTitle("Runs · Runreel");
  await page.goto(`${server.url}/threads/talk`);
  await expect.poll(() => asked).toBe(2);
  await page.getByRole("link", { name: "Runs", exact: true }).click();
  await expect(page).toHaveTitle("Runs · Runreel");
});

for (const width of [390, 1024]) {
  test(`at ${width} pixels the pages stay within the screen and can be reached`, async ({ page, server, producer }) => {
    await page.setViewportSize({ width, height: 800 });
    await producer.createRun({ title: "A run with a rather long title ".repeat(5), agent: "planner" });
    await page.goto(server.url);
    await expect(page.locator("[data-run]")).toHaveCount(1);
    await expectState(page, "live");
    const wider = () => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    expect(await wider()).toBeLessThanOrEqual(0);
    expect(await violations(page)).toEqual([]);
    await page.locator("[data-run] a").click();
    await expectState(page, "live");
    expect(await wider()).toBeLessThanOrEqual(0);
    expect(await violations(page)).toEqual([]);
    await page.getByRole("button", { name: "Jump to" }).click();
    await page.getByRole("option", { name: "Runs" }).click();
    await expect(page.locator("[data-run]")).toHaveCount(1);
    // Pages that the rail has no room for are in the palette.
    await page.getByRole("button", { name: "Jump to" }).click();
    await page.getByRole("option", { name: "Agents" }).click();
    await expect(page.getByRole("heading", { name: "Agents", level: 1 })).toBeVisible();
    expect(await wider()).toBeLessThanOrEqual(0);
  });
}

test("every page of the rail has an address, a title and the mark of where one is", async ({ page, server, producer }) => {
  await producer.createRun({ title: "Weekend in Lisbon", thread_id: "lisbon" });
  await page.goto(server.url);
  const rail = page.getByRole("navigation", { name: "Pages" });
  const names = ["Runs", "Threads", "Inbox", "Sessions", "Artifacts", "SQL", "Insights", "Agents", "Settings"];
  await expect(rail.getByRole("link")).toHaveText(names);
  for (const name of names) {
    const link = rail.getByRole("link", { name, exact: true });
    await link.click();
    await expect(link).toHaveAttribute("aria-current", "page");
    await expect(page).toHaveTitle(`${name} · Runreel`);
    await expect(page.getByRole("heading", { name, level: 1 })).toBeVisible();
  }
  await page.keyboard.press("Control+k");
  const field = page.getByRole("combobox", { name: "Pages, runs and commands" });
  await field.fill("lisb");
  await expect(page.getByRole("option", { name: "lisbon", exact: true })).toBeVisible();
  await page.getByRole("option", { name: "lisbon", exact: true }).click();
  await expect(page).toHaveURL(`${server.url}/threads/lisbon`);
});

test("who comes back from a run to the figures finds them where they stood", async ({ page, server, producer }) => {
  for (const n of upTo(12)) {
    const run_id = await producer.createRun({ title: `Run ${n}`, agent: `agent ${n}` });
    await producer.emit(run_id, { type: "run.failed", payload: { error: { code: `code ${n}`, message: "no" } } });
  }
  await page.goto(`${server.url}/insights`);
  const link = page.getByRole("link", { name: "code 12" });
  await expect(link).toBeVisible();
  await expect(page.getByText("Loading …")).toHaveCount(0);
  await page.setViewportSize({ width: 1280, height: 500 });
  await link.scrollIntoViewIfNeeded();
  const box = page.getByRole("region", { name: "Figures" });
  const top = await box.evaluate((each) => each.scrollTop);
  expect(top).toBeGreaterThan(100);
  await link.click();
  await expect(page.getByRole("heading", { name: "Run 12" })).toBeVisible();
  await page.goBack();
  await expect(link).toBeInViewport();
  expect(await box.evaluate((each) => each.scrollTop)).toBe(top);
});
