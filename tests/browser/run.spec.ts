import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { cardText, expectEvents, expectState, seqsInList, upTo } from "./page.ts";
import { tripRun } from "./trip.ts";

test("a run is followed live: events and tokens appear by themselves", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Live run", agent: "writer" });
  await page.goto(`${server.url}/runs/${run_id}?tab=log`);
  await expectState(page, "live");
  await producer.emit(run_id, { type: "tool.started", span_id: "t1", payload: { name: "search" } });
  await expect(page.getByRole("row").filter({ hasText: "tool.started" })).toContainText("search");

  await page.getByRole("tab", { name: "Conversation" }).click();
  await producer.emit(run_id, producer.token("m1", "Hello "));
  await expect(cardText(page, "m1")).toHaveText("Hello ");
  await producer.emit(run_id, producer.token("m1", "wörld 😀"));
  await expect(cardText(page, "m1")).toHaveText("Hello wörld 😀");
  const content = [{ type: "text", text: "Hello wörld 😀!" }];
  await producer.emit(run_id, {
    type: "message.completed",
    span_id: "m1",
    payload: { role: "assistant", content },
  });
  await expect(cardText(page, "m1")).toHaveText("Hello wörld 😀!");
  await expect(page.locator("article")).toHaveAttribute("data-open", "false");

  await producer.emit(run_id, { type: "run.completed" });
  await expectState(page, "ended");
  await expect(
    page.getByRole("banner").or(page.locator("header")).filter({ hasText: "Live run" }),
  ).toContainText("completed");
});

test("a reader that joins in the middle of a message sees the text so far, then the rest", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Joined late" });
  await producer.emit(run_id, producer.token("m1", "Once upon 😀 "), producer.token("m1", "a time "));
  await page.goto(`${server.url}/runs/${run_id}?tab=output`);
  await expect(cardText(page, "m1")).toHaveText("Once upon 😀 a time ");
  await producer.emit(run_id, producer.token("m1", "there was"));
  await expect(cardText(page, "m1")).toHaveText("Once upon 😀 a time there was");
  await expect(page.getByText("Some characters are missing")).toHaveCount(0);
});

test("the conversation has what was asked, the calls of tools in a line, and the answer as it is meant", async ({
  page,
  server,
  producer,
}) => {
  const input = { messages: [{ role: "user", content: "Weather in Lisbon?" }] };
  const run_id = await producer.createRun({ title: "Ask", input });
  await producer.emit(
    run_id,
    { type: "tool.started", span_id: "t1", payload: { name: "weather", args: { city: "Lisbon" } } },
    { type: "tool.failed", span_id: "t1", payload: { name: "weather", error: { message: "503" } } },
    { type: "message.completed", span_id: "m1", payload: { role: "assistant", content: "**Clear**, 24 °C" } },
  );
  await page.goto(`${server.url}/runs/${run_id}?tab=output`);
  const pane = page.getByRole("region", { name: "Texts of the run" });
  await expect(pane).toContainText("Weather in Lisbon?");
  await expect(pane.locator("strong", { hasText: "Clear" })).toBeVisible();
  expect(await violations(page)).toEqual([]);
  await pane.getByRole("button", { name: "weather" }).click();
  await expect(page.getByRole("complementary").getByRole("region", { name: "Error" })).toContainText("503");
});

test("the waterfall nests spans, shows failures, and grows with the run", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await tripRun(producer, true);
  await page.goto(`${server.url}/runs/${run_id}`);
  const grid = page.getByRole("treegrid", { name: "Spans of the run" });
  const rows = grid.locator("[aria-level]");
  await expect(rows).toHaveCount(8);
  await expect(rows.nth(0)).toHaveAttribute("aria-level", "1");
  const tool = grid.getByRole("row").filter({ hasText: "weather" });
  await expect(tool).toHaveAttribute("aria-level", "3");
  const failed = grid.getByRole("row").filter({ hasText: "search_flights" }).first();
  await expect(failed.getByRole("img", { name: "failed" })).toBeVisible();
  await failed.click();
  await expect(page.getByRole("complementary")).toContainText("tool.started");
  await expect(page.getByRole("complementary")).toContainText("search_flights");

  await grid.getByRole("row").filter({ hasText: "step plan" }).getByRole("button", { name: "Close" }).click();
  await expect(rows).toHaveCount(5);
  await page.keyboard.press("/");
  await page.keyboard.type("weather");
  await expect(rows).toHaveCount(3);
});

test("a worker's bar leads to its run, and that run back to its parent", async ({
  page,
  server,
  producer,
}) => {
  const parent_run_id = await producer.createRun({ title: "Supervise", role: "supervisor" });
  const child = await producer.createRun({ title: "Work", role: "worker", parent_run_id });
  const payload = { run_id: child, name: "worker one" };
  await producer.emit(parent_run_id, { type: "worker.spawned", span_id: child, payload });
  await page.goto(`${server.url}/runs/${parent_run_id}`);
  await page.getByRole("treegrid").getByRole("link", { name: "worker one" }).first().click();
  await expect(page).toHaveURL(`${server.url}/runs/${child}`);
  await expect(page.getByRole("heading", { name: "Work", exact: true })).toBeVisible();
  await page.getByRole("link", { name: "parent run" }).click();
  await expect(page.getByRole("heading", { name: "Supervise" })).toBeVisible();
  await page.getByRole("navigation", { name: "Related runs" }).getByRole("link", { name: "Work" }).click();
  await expect(page).toHaveURL(`${server.url}/runs/${child}`);
});

test("a link to an event opens it, and the keyboard goes on from there", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Long run" });
  const logs = upTo(2000).map((n) => ({ type: "log.info", payload: { message: `line ${n}` } }));
  const { last_seq } = await producer.emit(run_id, ...logs);
  await page.goto(`${server.url}/runs/${run_id}?tab=log&sel=900`);
  const selected = page.locator('[role=row][aria-selected="true"]');
  await expect(selected).toHaveAttribute("data-seq", "900");
  await expect(page.getByRole("complementary")).toContainText("#900");
  await page.keyboard.press("j");
  await expect(selected).toHaveAttribute("data-seq", "901");
  await page.keyboard.press("k");
  await page.keyboard.press("k");
  await expect(selected).toHaveAttribute("data-seq", "899");
  await page.keyboard.press("Escape");
  await expect(page.getByRole("complementary")).toHaveCount(0);
  await page.keyboard.press("f");
  await expect(page.locator(`[data-seq="${last_seq}"]`)).toBeInViewport();
  await page.keyboard.press("/");
  // Who pauses behind a blank still means it.
  await page.keyboard.type("line ");
  await expect(page).toHaveURL(/[?&]q=line(&|$)/);
  await page.keyboard.type("1234");
  await expect(page.locator("[data-seq]")).toHaveCount(1);
  await page.keyboard.press("Escape");
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Keys" })).toBeVisible();
});

test("scrolling up lets go of the end, the new rows are counted, one click follows again", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Busy run" });
  const logs = (from: number, count: number) =>
    upTo(count).map((n) => ({ type: "log.info", payload: { message: `line ${from + n}` } }));
  await producer.emit(run_id, ...logs(0, 200));
  await page.goto(`${server.url}/runs/${run_id}?tab=log`);
  const last = await producer.lastSeq(run_id);
  await expect(page.locator(`[data-seq="${last}"]`)).toBeInViewport();
  await page.getByRole("grid").hover();
  await page.mouse.wheel(0, -900);
  await expect(page.getByRole("button", { name: "Follow", exact: true })).toBeVisible();
  const top = () => page.getByRole("grid").evaluate((grid) => grid.scrollTop);
  await expect.poll(async () => (await top()) === (await top())).toBe(true);
  const before = await top();
  await producer.emit(run_id, ...logs(200, 50));
  await expect(page.getByRole("button", { name: "↓ 50 new" })).toBeVisible();
  expect(await top()).toBe(before);
  await page.getByRole("button", { name: "↓ 50 new" }).click();
  await expect(page.locator(`[data-seq="${last + 50}"]`)).toBeInViewport();
  await expectEvents(page, last + 50);
  expect(await seqsInList(page)).toEqual(upTo(last + 50));
});

test("a run that does not exist says so", async ({ page, server, complaints }) => {
  await page.goto(`${server.url}/runs/0195f3a0-0000-7000-8000-000000000001`);
  await expect(page.getByRole("heading", { name: "No such run" })).toBeVisible();
  // The browser itself logs the 404; nothing else may be there.
  const others = complaints.filter((complaint) => !complaint.includes("status of 404"));
  expect(others).toEqual([]);
  complaints.length = 0;
});

test("a worker's spans are opened below its bar, live, and read without leaving the page", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Supervise", role: "supervisor" });
  const child = await producer.createRun({ title: "Work", role: "worker", parent_run_id: run_id });
  const call = { type: "tool.started", span_id: "t1", payload: { name: "search", args: { q: "lisbon" } } };
  await producer.emit(child, call);
  await producer.emit(run_id, { type: "worker.spawned", span_id: child, payload: { run_id: child, name: "work" } });
  await page.goto(`${server.url}/runs/${run_id}`);
  const rows = page.getByRole("treegrid").locator("[aria-level]");
  await expect(rows).toHaveCount(2);
  await rows.nth(1).getByRole("button", { name: "Open" }).click();
  await expect(rows).toHaveCount(3);
  await expect(rows.nth(2)).toContainText("search");
  await expect(rows.nth(2)).toHaveAttribute("aria-level", "3");
  const started = { type: "tool.started", span_id: "t2", payload: { name: "fetch" } };
  await producer.emit(child, { type: "tool.completed", span_id: "t1", payload: { result: "sunny" } }, started);
  await expect(rows).toHaveCount(4);

  await rows.nth(2).click();
  const detail = page.getByRole("complementary");
  await expect(detail.getByRole("region", { name: "Output" })).toContainText("sunny");
  await expect(detail.getByRole("region", { name: "Facts" })).toContainText(child);
  await expect(rows.nth(2)).toHaveAttribute("aria-selected", "true");
  expect(await violations(page)).toEqual([]);
  // The address has it all.
  await page.reload();
  await expect(detail.getByRole("region", { name: "Output" })).toContainText("sunny");
  await expect(rows).toHaveCount(4);
  await page.keyboard.press("k");
  await page.keyboard.press("ArrowLeft");
  await expect(rows).toHaveCount(2);
});
