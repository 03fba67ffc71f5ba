import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";

test("the run's row opens the run: why it failed, what went in, its times; errors begin where the failure did", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({
    title: "Import",
    agent: "importer",
    input: { file: "catalogue.csv" },
    metadata: { git: "91bc221" },
    tags: ["nightly"],
  });
  const error = { type: "KeyError", message: "'customer_id'", stack: '  File "/app/load.py", line 4, in load\n    row["customer_id"]' };
  await producer.emit(
    run_id,
    { type: "step.started", span_id: "s1", payload: { name: "load" } },
    { type: "tool.started", span_id: "t1", parent_span_id: "s1", payload: { name: "fetch" } },
    { type: "tool.failed", span_id: "t1", payload: { name: "fetch", error } },
    { type: "step.failed", span_id: "s1", payload: { name: "load" } },
    { type: "run.failed", payload: { error: { type: "ImportError", message: "no rows", cause: error } } },
  );
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "ended");
  const row = (text: string) => page.getByRole("treegrid").getByRole("row").filter({ hasText: text });
  await expect(row("fetch")).toContainText("KeyError: 'customer_id'");
  // A step that says nothing has its name, and no error that is its name.
  await expect(row("step")).toHaveText(/^\s*▾?\s*step\s*load\s*[\d.]+ m?s\s*$/);

  await page.keyboard.press("e");
  const detail = page.getByRole("complementary");
  await expect(detail).toContainText("tool.started");
  await expect(detail.locator("[data-failure=KeyError]")).toContainText("'customer_id'");
  await expect(detail.getByRole("group", { name: "Stack" })).toContainText("in load");

  await row("Import").click();
  const run = page.getByRole("complementary", { name: "The run" });
  for (const told of ["ImportError", "no rows", "Caused by", "KeyError", "catalogue.csv", "91bc221", "nightly"])
    await expect(run).toContainText(told);
  for (const time of ["created", "began", "ended", "took"])
    await expect(run.getByRole("region", { name: "Times" })).toContainText(time);
  expect(await violations(page)).toEqual([]);
});

test.describe("while the server fails", () => {
  test.use({ allowsStatus: [500] });

  test("the page says nothing of a run that it has not read, but why it has not", async ({ page, server, producer }) => {
    const run_id = await producer.createRun({ title: "Import" });
    const problem = { title: "Internal error", status: 500, code: "internal", detail: "no database" };
    await page.route(`**/api/runs/${run_id}`, (route) =>
      route.fulfill({ status: 500, contentType: "application/problem+json", body: JSON.stringify(problem) }),
    );
    await page.goto(`${server.url}/runs/${run_id}`);
    const header = page.locator("main header");
    await expect(header.getByRole("alert")).toContainText("no database");
    for (const told of ["queued", "not started", "events"]) await expect(header).not.toContainText(told);
    await page.unroute(`**/api/runs/${run_id}`);
    await expect(header.getByRole("heading", { name: "Import" })).toBeVisible();
  });
});

test("a run that is silent and one that nobody executes say so", async ({ page, server, producer }) => {
  const silent = await producer.createRun({ title: "Silent", lease_ms: 1_000 });
  await producer.emit(silent, { type: "tool.started", span_id: "t1", payload: { name: "long_tool" } });
  const queued = await producer.createRun({ title: "Waits", agent: "nobody-serves", start: false });
  await page.goto(`${server.url}/runs/${silent}`);
  await expect(page.locator("[data-quiet]")).toContainText(/Nothing has been heard [\s\S]* tool\.started: long_tool/);
  await page.goto(`${server.url}/runs/${queued}`);
  await expect(page.locator("[data-quiet]")).toContainText("neither this server nor any connected runner executes nobody-serves");
});
