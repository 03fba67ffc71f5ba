import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";
import { Program } from "./producer.ts";

test("the list of runs is live from its empty state on", async ({ page, server, producer }) => {
  await page.goto(server.url);
  await expect(page.getByRole("heading", { name: "No runs yet" })).toBeVisible();
  await expect(page.getByText("curl", { exact: false }).first()).toBeVisible();
  await expectState(page, "live");

  const run_id = await producer.createRun({ title: "First run", agent: "writer" });
  const row = page.locator(`[data-run="${run_id}"]`);
  await expect(row).toContainText("First run");
  await expect(row).toContainText("running");
  const { last_seq } = await producer.emit(run_id, { type: "log.info" }, { type: "log.info" });
  await expect(row.locator("[data-events]")).toHaveAttribute("data-events", String(last_seq));
  await producer.emit(run_id, { type: "run.failed", payload: { error: { message: "no" } } });
  await expect(row).toContainText("failed");

  const second = await producer.createRun({ title: "Second run" });
  await expect(page.locator("[data-run]").first()).toHaveAttribute("data-run", second);
  await expect(page.locator("[data-run]")).toHaveCount(2);
});

test("a program that is killed leaves its run stalled, on its open page and in the list", async ({
  page,
  context,
  server,
  producer,
}, info) => {
  const lease_ms = 3_000;
  const run_id = await producer.createRun({ title: "Killed trip", lease_ms });
  const program = new Program(server.url, run_id, lease_ms / 6);
  try {
    const list = await context.newPage();
    await list.goto(server.url);
    await page.goto(`${server.url}/runs/${run_id}`);
    const places = [page.locator("header .badge"), list.locator(`[data-run="${run_id}"] .badge`)];
    // It lives longer than its lease without an event.
    await program.beats(10);
    for (const place of places) await expect(place).toHaveText("running");
    program.kill();
    const killed_ms = Date.now();
    for (const place of places) await expect(place).toHaveText("stalled", { timeout: 2 * lease_ms });
    info.annotations.push({ type: "stalled after", description: `${Date.now() - killed_ms} ms` });
  } finally {
    program.kill();
  }
});

test("filter and search stand in the address and survive a reload", async ({ page, server, producer }) => {
  const failed = await producer.createRun({ title: "Broken trip" });
  await producer.emit(failed, { type: "run.failed" });
  const going = await producer.createRun({ title: "Fine trip" });
  await page.goto(server.url);
  await expect(page.locator("[data-run]")).toHaveCount(2);
  await page.getByRole("group", { name: "Status" }).getByRole("button", { name: "failed" }).click();
  await expect(page.locator("[data-run]")).toHaveCount(1);
  expect(new URL(page.url()).search).toBe("?status=failed");
  await producer.emit(going, { type: "run.failed" });
  await expect(page.locator("[data-run]")).toHaveCount(2);
  await page.keyboard.press("/");
  await page.keyboard.type("Broken");
  await expect(page.locator("[data-run]")).toHaveCount(1);
  await page.reload();
  await expect(page.locator("[data-run]")).toHaveCount(1);
  await page.getByRole("link", { name: "Broken trip" }).click();
  await expect(page.getByRole("heading", { name: "Broken trip" })).toBeVisible();
  await page.goBack();
  await expect(page.getByLabel("Search runs")).toHaveValue("Broken");
});

test("a row says how its run went, and a click leaves only its agent or tag", async ({ page, server, producer }) => {
  const failed = await producer.createRun({ title: "Import", agent: "importer", tags: ["nightly"] });
  await producer.emit(failed, { type: "run.failed", payload: { error: { message: "429 from the ledger" } } });
  const done = await producer.createRun({ title: "Report", agent: "reporter", tags: ["nightly"] });
  await producer.emit(done, { type: "run.completed", payload: { output: { text: "12 rows" } } });
  await page.goto(server.url);
  const row = (run_id: string) => page.locator(`[data-run="${run_id}"]`);
  await expect(row(failed)).toContainText("429 from the ledger");
  await expect(row(done)).toContainText("12 rows");
  await row(failed).getByRole("button", { name: "importer" }).click();
  await expect(page.locator("[data-run]")).toHaveCount(1);
  await expect(page).toHaveURL(`${server.url}/?agent=importer`);
  await page.getByRole("button", { name: "Remove agent: importer" }).click();
  await expect(page.locator("[data-run]")).toHaveCount(2);
  await page.getByLabel("Search runs").fill("tag:nightly agent:reporter");
  await page.keyboard.press("Enter");
  await expect(page.locator("[data-run]")).toHaveCount(1);
  expect(new URL(page.url()).searchParams.get("tag")).toBe("nightly");
  await page.getByRole("button", { name: "Clear" }).click();
  await expect(page.locator("[data-run]")).toHaveCount(2);
});

test("a run that ends while the list is open says how it went", async ({ page, server, producer }) => {
  const failed = await producer.createRun({ title: "Import" });
  const done = await producer.createRun({ title: "Report" });
  await page.goto(server.url);
  await expectState(page, "live");
  await producer.emit(failed, { type: "run.failed", payload: { error: { message: "429 from the ledger" } } });
  const usage = { input_tokens: 1_200, output_tokens: 300 };
  const message = { role: "assistant", content: "12 rows", model: "gpt-4o", usage };
  await producer.emit(done, { type: "message.completed", payload: message }, { type: "run.completed" });
  await expect(page.locator(`[data-run="${failed}"]`)).toContainText("429 from the ledger");
  const row = page.locator(`[data-run="${done}"]`);
  await expect(row).toContainText("12 rows");
  // What it used is the server's sum.
  await expect(row.locator(".tokens")).toHaveText("1.5K");
  await expect(row.locator(".cost")).toContainText("$");
});

test("runs below another are folded, opened and walked through with the keyboard", async ({
  page,
  server,
  producer,
}) => {
  const parent_run_id = await producer.createRun({ title: "Supervise", role: "supervisor" });
  for (const n of [1, 2, 3]) {
    const child = await producer.createRun({ title: `Work ${n}`, role: "worker", parent_run_id });
    if (n === 2) await producer.emit(child, { type: "run.failed" });
  }
  await page.goto(server.url);
  const rows = page.locator("[data-run]");
  await expect(rows).toHaveCount(1);
  await expect(page.getByTitle("3 below it, the worst failed")).toBeVisible();
  await page.keyboard.press("j");
  await page.keyboard.press("ArrowRight");
  await expect(rows).toHaveCount(4);
  expect(await violations(page)).toEqual([]);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Work 1" })).toBeVisible();
});

test.describe("through a bad way", () => {
  test.use({ allowsCuts: true });

  test("runs that began while the list was cut off are there after it", async ({ page, wire, producer }) => {
    await producer.createRun({ title: "Before" });
    await page.goto(wire.url);
    await expect(page.locator("[data-run]")).toHaveCount(1);
    await expectState(page, "live");
    wire.cut();
    await expectState(page, "reconnecting");
    const meanwhile = await producer.createRun({ title: "Meanwhile" });
    await producer.emit(meanwhile, { type: "run.completed" });
    wire.heal();
    await expect(page.locator(`[data-run="${meanwhile}"]`)).toContainText("completed");
    await expect(page.locator("[data-run]")).toHaveCount(2);
  });
});
