import { readFile } from "node:fs/promises";
import { expect, test } from "./fixtures.ts";
import { tripRun } from "./trip.ts";

// A query that is wrong is refused.
test.use({ allowsStatus: [422] });

const rows = "[data-rows]";
const query = (page: import("@playwright/test").Page) => page.getByLabel("Query");

test("a query is written with the words of the schema, run by the keyboard, and its runs are opened", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await tripRun(producer, true);
  await page.goto(`${server.url}/sql`);
  await expect(page.getByRole("tabpanel").getByText("tool_calls")).toBeVisible();
  await expect(query(page)).toBeFocused();
  await page.keyboard.type("select run_id, sta");
  await page.keyboard.press("Escape");
  await page.keyboard.type(" from ru");
  await expect(page.getByRole("option", { name: "runs" })).toHaveAttribute("aria-selected", "true");
  await page.keyboard.press("Enter");
  await expect(query(page)).toHaveValue("select run_id, sta from runs");
  await page.keyboard.type(" r where r.stat");
  await page.keyboard.press("Tab");
  await expect(query(page)).toHaveValue("select run_id, sta from runs r where r.status");

  // What is wrong is told where it is wrong.
  await page.keyboard.press("Control+Enter");
  const problem = page.getByRole("alert");
  await expect(problem).toContainText('column "sta" does not exist');
  await page.getByRole("button", { name: "Line 1, column 16" }).click();
  const caret = await query(page).evaluate((field: HTMLTextAreaElement) => field.selectionStart);
  expect(caret).toBe(15);

  await query(page).fill("select run_id, status, tags from runs");
  await page.keyboard.press("Control+Enter");
  await expect(page.locator(rows)).toHaveAttribute("data-rows", "1");
  await expect(problem).toHaveCount(0);
  await page.getByRole("link", { name: run_id }).click();
  await expect(page.getByRole("heading", { name: "Plan a weekend in Lisbon" })).toBeVisible();
  // Back is the result as it was, without asking again.
  let asked = 0;
  page.on("request", (request) => (asked += Number(request.url().endsWith("/api/sql"))));
  await page.goBack();
  await expect(page.locator(rows)).toHaveAttribute("data-rows", "1");
  expect(asked).toBe(0);
});

test("a query is a link, a file, a chart, and is remembered", async ({ page, context, server, producer }) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  for (const agent of ["planner", "planner", "coder"]) await producer.createRun({ agent });
  const text = "select agent, count(*) as runs from runs group by 1 order by 2 desc";
  await page.goto(`${server.url}/sql?q=${encodeURIComponent(text)}`);
  await expect(query(page)).toHaveValue(text);
  await page.keyboard.press("Control+Enter");
  await expect(page.locator(rows)).toHaveAttribute("data-rows", "2");
  await expect(page.getByRole("row").nth(1)).toContainText("planner");

  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "CSV" }).click();
  const file = await saved;
  expect(file.suggestedFilename()).toBe("query.csv");
  expect((await readFile(await file.path(), "utf8")).trim().split(/\r?\n/)).toEqual([
    "agent,runs",
    "planner,2",
    "coder,1",
  ]);

  await page.getByRole("button", { name: "Chart", exact: true }).click();
  const chart = page.getByRole("group", { name: "runs by agent" });
  await chart.focus();
  await page.keyboard.press("ArrowRight");
  await expect(chart.getByRole("status")).toContainText("planner runs 2");
  await page.getByRole("combobox", { name: /^Chart/ }).selectOption("lines");
  await expect(page).toHaveURL(/view=chart.*kind=lines/);
  await page.getByRole("button", { name: "Link" }).click();
  const link = await page.evaluate(() => navigator.clipboard.readText());
  await page.goto("about:blank");
  await page.goto(link);
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.getByRole("group", { name: "runs by agent" })).toBeVisible();

  await page.getByRole("tab", { name: "History" }).click();
  await expect(page.getByRole("button", { name: text })).toBeVisible();
  await page.getByRole("button", { name: "Forget them" }).click();
  await expect(page.getByText("Queries that you run are kept here")).toBeVisible();
});

test("an example is asked by one click, and a long result is turned by pages", async ({ page, server, producer }) => {
  await tripRun(producer, true);
  await page.goto(`${server.url}/sql`);
  await page.getByRole("button", { name: "Which tools were slow last week?" }).click();
  await expect(page.locator(rows)).toHaveAttribute("data-rows", "2");
  await query(page).fill("select * from generate_series(1, 250) as n");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.locator(rows)).toHaveAttribute("data-rows", "250");
  await page.getByRole("button", { name: "Next" }).click();
  await expect(page.getByText("101 to 200 of 250")).toBeVisible();
  await page.getByLabel("At most").selectOption("100 rows");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.locator(rows)).toContainText("100 rows, and there are more");
});

test("numbers have all their digits, in the table and in the file", async ({ page, server }) => {
  await page.goto(`${server.url}/sql`);
  const [id, part] = ["9007199254740993", "0.1234567890123456789"];
  await query(page).fill(`select ${id}::int8 as id, ${part}::numeric as part, 3::int8 as few, '{"a":1.50}'::json as j`);
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.getByRole("cell")).toHaveText(["1", id, part, "3", '{"a":1.5}']);
  const saved = page.waitForEvent("download");
  await page.getByRole("button", { name: "CSV" }).click();
  expect(await readFile(await (await saved).path(), "utf8")).toContain(`${id},${part},3,`);
});

test("texts of a result are texts, whatever they are", async ({ page, server }) => {
  const evil = "<img src=x onerror=alert(1)>";
  await page.goto(
    `${server.url}/sql?q=${encodeURIComponent(`select '${evil}' as "${evil}", '{"a":"${evil}"}'::json as j`)}`,
  );
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.getByRole("cell", { name: evil, exact: true })).toBeVisible();
  await page.getByTitle("Show all").click();
  await expect(page.getByRole("dialog")).toContainText(evil);
});

test("the query of a link is run by its reader, not by the link; a reload and the way back run it again", async ({
  page,
  server,
}) => {
  let asked = 0;
  page.on("request", (request) => (asked += Number(request.url().endsWith("/api/sql"))));
  const [first, second] = ["select 1 as one", "select generate_series(1, 2) as two"];
  const address = (text: string) => `/sql?q=${encodeURIComponent(text)}`;
  const unasked = page.getByText("A link's query is not run by itself.");
  await page.goto(server.url + address(first));
  await expect(query(page)).toHaveValue(first);
  await expect(unasked).toBeVisible();
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.locator(rows)).toHaveAttribute("data-rows", "1");
  await page.reload();
  await expect(page.locator(rows)).toHaveAttribute("data-rows", "1");
  expect(asked).toBe(2);

  // As one in what an agent wrote.
  await page.evaluate((href) => {
    const link = document.createElement("a");
    link.href = href;
    document.body.append(link);
    link.click();
  }, address(second));
  await expect(query(page)).toHaveValue(second);
  await expect(unasked).toBeVisible();
  await expect(page.locator(rows)).toHaveCount(0);
  expect(asked).toBe(2);
  await page.goBack();
  await expect(query(page)).toHaveValue(first);
  await expect(page.locator(rows)).toHaveAttribute("data-rows", "1");
  expect(asked).toBe(3);
  await page.goForward();
  await expect(unasked).toBeVisible();
  expect(asked).toBe(3);
});
