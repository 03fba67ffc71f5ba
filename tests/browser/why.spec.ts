import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";

test("a failed run says why at its top, and leads to the event", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Import" });
  await producer.emit(
    run_id,
    { type: "tool.started", span_id: "t1", payload: { name: "fetch", args: { page: 7 } } },
    { type: "tool.failed", span_id: "t1", payload: { name: "fetch", error: { message: "429 from the ledger" } } },
  );
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  const why = page.getByRole("region", { name: "Why it failed" });
  await expect(why).toHaveCount(0);
  const { last_seq } = await producer.emit(run_id, {
    type: "run.failed",
    payload: { error: { message: "gave up after 5 tries" } },
  });
  await expect(why).toContainText("gave up after 5 tries");
  expect(await violations(page)).toEqual([]);
  await why.getByRole("button", { name: `Show event #${last_seq}` }).click();
  await expect(page.getByRole("complementary")).toContainText("gave up after 5 tries");
});

test("the answer of a finished run is read first, as what it means and never as markup", async ({
  page,
  server,
  producer,
}) => {
  const text = [
    "# Done",
    "**128 €** each, [book](javascript:alert(1)) or [look](/runs)",
    "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>",
    "| a | b |\n|---|---|\n| 1 | <b>2</b> |",
    "```js\nlet x = '<i>';\n```",
  ].join("\n\n");
  const run_id = await producer.createRun({ title: "Trip", agent: "planner", tags: ["demo"], thread_id: "trips" });
  const usage = { input_tokens: 812, output_tokens: 41 };
  await producer.emit(
    run_id,
    { type: "message.completed", span_id: "m1", payload: { role: "assistant", content: text, model: "m-1", usage } },
    { type: "run.completed" },
  );
  await page.goto(`${server.url}/runs/${run_id}`);
  const answer = page.getByRole("region", { name: "The answer" });
  await expect(answer.locator("strong", { hasText: "128 €" })).toBeVisible();
  await answer.getByRole("button", { name: "More" }).click();
  await expect(answer.getByRole("heading", { name: "Done" })).toBeVisible();
  await expect(answer.getByRole("cell", { name: "<b>2</b>" })).toBeVisible();
  await expect(answer.getByRole("link")).toHaveCount(1);
  await expect(answer.locator("img, script, b, i")).toHaveCount(0);
  await expect(page).toHaveTitle("✓ Trip · Runreel");
  for (const fact of ["812 tokens in", "41 out", "m-1", "planner", "demo"]) {
    await expect(page.locator("header")).toContainText(fact);
  }
  await page.locator("header").getByRole("link", { name: "trips" }).click();
  await expect(page).toHaveURL(`${server.url}/?thread_id=trips`);
  await expect(page.locator("[data-run]")).toHaveCount(1);
  await page.getByRole("button", { name: "Remove thread: trips" }).click();
  await expect(page).toHaveURL(`${server.url}/`);
});

test("cancelling asks first, with the number of runs below; deleting too", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Supervise", role: "supervisor" });
  const child = await producer.createRun({ title: "Work", role: "worker", parent_run_id: run_id });
  await producer.createRun({ title: "Work below", role: "worker", parent_run_id: child });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  await page.getByRole("button", { name: "Cancel run" }).click();
  const dialog = page.getByRole("dialog");
  await expect(dialog).toContainText("2 runs below it that have not ended");
  expect(await violations(page)).toEqual([]);
  await dialog.getByRole("button", { name: "Keep it going" }).click();
  await expect(page.locator("header .badge").first()).toHaveText("running");
  await page.getByRole("button", { name: "Cancel run" }).click();
  await dialog.getByLabel("Reason").fill("wrong data");
  await dialog.getByRole("button", { name: "Cancel run" }).click();
  await expectState(page, "ended");
  // The child's end is seen without a reload.
  await expect(page.getByRole("navigation", { name: "Related runs" }).locator(".badge")).toHaveText("cancelled");

  await page.getByRole("button", { name: "Delete" }).click();
  await dialog.getByRole("button", { name: "Delete run" }).click();
  await expect(page).toHaveURL(`${server.url}/`);
  await expect(page.getByText("The run is deleted.")).toBeVisible();
  await expect(page.locator(`[data-run="${run_id}"]`)).toHaveCount(0);
});

test("a child that starts while the page is open appears at once", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Supervise", role: "supervisor" });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  const child = await producer.createRun({ title: "Work", role: "worker", parent_run_id: run_id });
  const payload = { run_id: child, name: "work" };
  await producer.emit(run_id, { type: "worker.spawned", span_id: child, payload });
  const link = page.getByRole("navigation", { name: "Related runs" }).getByRole("link", { name: "Work" });
  await expect(link.locator(".badge")).toHaveText("running");
  await producer.emit(child, { type: "run.failed" });
  await expect(link.locator(".badge")).toHaveText("failed", { timeout: 10_000 });
});
