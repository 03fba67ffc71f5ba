import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState, upTo } from "./page.ts";
import type { NewEvent } from "./producer.ts";
import { tripRun } from "./trip.ts";

const rowOf = (page: import("@playwright/test").Page, text: string) =>
  page.getByRole("treegrid").getByRole("row").filter({ hasText: text });

test("a tool's call is one thing: what it was given, what came out, why it failed, its events", async ({
  page,
  context,
  server,
  producer,
}) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const run_id = await tripRun(producer, true);
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "ended");
  // Arguments and errors are read without opening anything.
  await expect(rowOf(page, "weather")).toContainText(`city: "Lisbon", days: 2`);
  await expect(rowOf(page, "search_flights").first()).toContainText("the airline's service answered 503");

  await rowOf(page, "weather").click();
  const detail = page.getByRole("complementary");
  await expect(detail.getByRole("region", { name: "Input" })).toContainText("Lisbon");
  await expect(detail.getByRole("region", { name: "Output" })).toContainText("celsius");
  await expect(detail.getByRole("region", { name: "Error" })).toHaveCount(0);
  await expect(detail.getByRole("region", { name: "Events" })).toContainText("tool.completed");
  expect(await violations(page)).toEqual([]);
  await page.keyboard.press("c");
  await expect(detail.getByText("Copied")).toBeVisible();
  const copied = JSON.parse(await page.evaluate(() => navigator.clipboard.readText())) as { type: string }[];
  expect(copied.map((event) => event.type)).toEqual(["tool.started", "tool.completed"]);

  await page.keyboard.press("e");
  await expect(detail.getByRole("region", { name: "Error" })).toContainText("answered 503");
  await expect(detail.getByRole("region", { name: "Input" })).toContainText("BER");
});

test("kinds are left out and come back, and the address keeps it", async ({ page, server, producer }) => {
  const run_id = await tripRun(producer, true);
  await page.goto(`${server.url}/runs/${run_id}`);
  const rows = page.getByRole("treegrid").locator("[aria-level]");
  await expect(rows).toHaveCount(8);
  await page.getByRole("button", { name: "step" }).click();
  await expect(rows).toHaveCount(6);
  await expect(rowOf(page, "weather")).toHaveAttribute("aria-level", "2");
  await page.reload();
  await expect(rows).toHaveCount(6);
  await page.getByRole("button", { name: "step" }).click();
  await expect(rows).toHaveCount(8);
});

test("what is searched is found in payloads too, and what is nowhere is said", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Pages" });
  await producer.emit(
    run_id,
    { type: "tool.started", span_id: "t", payload: { name: "fetch", args: { page: "Needle-77" } } },
    { type: "custom.thing", payload: { deep: { words: "the haystack has it" } } },
  );
  await page.goto(`${server.url}/runs/${run_id}?tab=log`);
  await expect(page.locator("[data-seq]")).toHaveCount(4);
  await page.keyboard.press("/");
  await page.keyboard.type("haystack");
  await expect(page.locator("[data-seq]")).toHaveCount(1);
  await page.getByLabel("Search in this run").fill("nowhere at all");
  await expect(page.getByText("No event has “nowhere at all”.")).toBeVisible();
  await page.getByRole("button", { name: "Clear the search" }).click();
  await expect(page.locator("[data-seq]").first()).toBeVisible();
});

test.describe("while the server is busy", () => {
  test.use({ allowsStatus: [503] });

  test("a search waits for it, and says of nothing that it is nowhere", async ({ page, server, producer }) => {
    const run_id = await producer.createRun({ title: "Pages" });
    // Only the server can see that far.
    await producer.emit(run_id, { type: "custom.thing", payload: { hay: "hay ".repeat(5_000), deep: { words: "needle" } } });
    let asked = 0;
    await page.route("**/search?*", (route) =>
      (asked += 1) < 3 ? route.fulfill({ status: 503, json: { code: "unavailable" } }) : route.continue(),
    );
    await page.goto(`${server.url}/runs/${run_id}?tab=log&q=needle`);
    await expect.poll(() => asked).toBeGreaterThanOrEqual(2);
    await expect(page.getByText("No event has")).toHaveCount(0);
    await expect(page.locator("[data-seq]")).toHaveCount(1);
    expect(asked).toBe(3);
  });
});

test("a run of which nothing is known but its beginning and its end is drawn whole", async ({
  page,
  server,
  producer,
}) => {
  const began_ms = Date.now() - 3_600_000;
  const run_id = await producer.createRun({ title: "Silent", start: false });
  await producer.emit(run_id, { type: "run.started", at: new Date(began_ms).toISOString() });
  await producer.emit(run_id, { type: "run.failed", at: new Date(began_ms + 120_000).toISOString(), payload: { error: "no" } });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expect(rowOf(page, "Silent")).toContainText("2 m");
  await expect(page.locator("header .badge").first()).toHaveText("failed");
});

test("a run that waits twice in one moment is drawn", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Twice" });
  const at = new Date().toISOString();
  await producer.emit(run_id, ...["run.waiting", "run.resumed", "run.waiting"].map((type) => ({ type, at })));
  await page.goto(`${server.url}/runs/${run_id}`);
  await expect(rowOf(page, "Twice")).toBeVisible();
  await expect(page.locator("header .badge").first()).toHaveText("waiting");
});

test("a night in which nothing happened does not squeeze the rest; zoom stays in the address", async ({
  page,
  server,
  producer,
}) => {
  const start_ms = Date.now() - 10 * 3_600_000;
  const at = (ms: number) => new Date(start_ms + ms).toISOString();
  const run_id = await producer.createRun({ title: "Over night", start: false });
  const tool = (n: number, ms: number) => [
    { type: "tool.started", span_id: `t${n}`, at: at(ms), payload: { name: `call_${n}` } },
    { type: "tool.completed", span_id: `t${n}`, at: at(ms + 2_000), payload: {} },
  ];
  await producer.emit(run_id, { type: "run.started", at: at(0) }, ...tool(1, 1_000), ...tool(2, 36_000_000 - 4_000));
  await producer.emit(run_id, { type: "run.completed", at: at(36_000_000 - 1_000) });
  await page.goto(`${server.url}/runs/${run_id}`);
  const width = (name: string) =>
    rowOf(page, name).locator(".bar").evaluate((bar) => bar.getBoundingClientRect().width);
  const night = page.getByTitle(/^9 h 59 m idle/);
  await expect(night).toHaveText("9 h 59 m idle");
  expect(await width("call_1")).toBeGreaterThan(60);
  await page.getByRole("button", { name: "Real time" }).click();
  await expect(night).toHaveCount(0);
  await expect(page).toHaveURL(/time=real/);
  expect(await width("call_1")).toBeLessThan(10);
  await page.getByRole("button", { name: "Real time" }).click();
  await rowOf(page, "call_2").click();
  const before = await width("call_2");
  await page.keyboard.press("w");
  await expect(page).toHaveURL(/zoom=/);
  await expect.poll(() => width("call_2")).toBeGreaterThan(before * 1.2);
  await page.getByRole("button", { name: "See all" }).click();
  await expect.poll(() => width("call_2")).toBe(before);
});

test("what took most of a run is drawn so; a step's bar is hatched while a person is waited for", async ({
  page,
  server,
  producer,
}) => {
  const start_ms = Date.now() - 200_000;
  const at = (s: number) => new Date(start_ms + s * 1_000).toISOString();
  const run_id = await producer.createRun({ title: "Slow", start: false });
  const tool = (name: string, from: number, to: number): NewEvent[] => [
    { type: "tool.started", span_id: name, at: at(from), payload: { name } },
    { type: "tool.completed", span_id: name, at: at(to), payload: {} },
  ];
  await producer.emit(
    run_id,
    { type: "run.started", at: at(0) },
    ...tool("short", 1, 3),
    ...tool("long", 4, 64),
    { type: "step.started", span_id: "s", at: at(65), payload: { name: "ask" } },
    { type: "run.interrupted", at: at(66) },
    { type: "run.resumed", at: at(106) },
    { type: "step.completed", span_id: "s", at: at(107), payload: { name: "ask", duration_ms: 2_000 } },
    { type: "run.completed", at: at(108) },
  );
  await page.goto(`${server.url}/runs/${run_id}`);
  const cut = page.getByTitle(/not drawn to scale$/);
  await expect(cut).toHaveText("40.0 s waiting");
  const width = (name: string) =>
    rowOf(page, name).locator(".bar").first().evaluate((bar) => bar.getBoundingClientRect().width);
  expect((await width("long")) / (await width("short"))).toBeCloseTo(30, 0);
  await expect(rowOf(page, "ask")).toContainText("2.0 s");
  await expect(rowOf(page, "ask").locator(".held")).toHaveCount(1);
  await expect(rowOf(page, "ask").getByTitle("ask: 2.0 s, waited 40.0 s")).toBeVisible();
});

test("artifacts are shown as what they are and downloaded whole; markup in them runs nothing", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Report" });
  const upload = (name: string, type: string, body: string | Uint8Array<ArrayBuffer>) =>
    fetch(`${server.url}/api/runs/${run_id}/artifacts?name=${name}`, {
      method: "POST",
      headers: { "content-type": type },
      body,
    });
  const evil = "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">";
  await upload("page.html", "text/html", evil);
  await upload("prices.csv", "text/csv", 'airline,price\n"Air, Europa",120\n');
  await upload("notes.md", "text/markdown", `# Notes\n\n${evil}\n`);
  await page.goto(`${server.url}/runs/${run_id}?tab=artifacts`);
  const list = page.getByRole("region", { name: "Artifacts of the run" });
  await expect(list.getByRole("article")).toHaveCount(3);
  await expect(list.getByRole("cell", { name: "Air, Europa" })).toBeVisible();
  await expect(list.getByRole("heading", { name: "Notes" })).toBeVisible();
  await expect(list.locator("img, script, iframe")).toHaveCount(0);
  await expect(page).toHaveTitle("● Report · Runreel");
  expect(await violations(page)).toEqual([]);
  // Live: a new one is there without a reload.
  const png =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  await upload("dot.png", "image/png", Uint8Array.from(Buffer.from(png, "base64")));
  await expect(list.getByRole("article")).toHaveCount(4);
  await expect.poll(() => list.locator("canvas").first().evaluate((each) => (each as HTMLCanvasElement).width)).toBe(1);
  const download = page.waitForEvent("download");
  await list.locator("article", { hasText: "page.html" }).getByRole("button", { name: "Download" }).click();
  expect((await download).suggestedFilename()).toBe("page.html");
});

test("a payload that became an artifact is opened where it stands", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Large" });
  const rows = upTo(9_000).map((n) => `row ${n}`);
  await producer.emit(
    run_id,
    { type: "tool.started", span_id: "t", payload: { name: "read" } },
    { type: "tool.completed", span_id: "t", payload: { name: "read", result: rows } },
  );
  await page.goto(`${server.url}/runs/${run_id}`);
  await rowOf(page, "read").click();
  const output = page.getByRole("complementary").getByRole("region", { name: "Output" });
  await output.getByRole("button", { name: "Show" }).click();
  await expect(output).toContainText("[9000]");
});

test("a long run has an overview, in which a stretch is drawn over to be shown", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Many calls" });
  const start_ms = Date.now() - 600_000;
  const at = (ms: number) => new Date(start_ms + ms).toISOString();
  const calls = upTo(300).flatMap((n) => [
    { type: "tool.started", span_id: `t${n}`, at: at(n * 1000), payload: { name: `call_${n}` } },
    { type: n === 200 ? "tool.failed" : "tool.completed", span_id: `t${n}`, at: at(n * 1000 + 900), payload: {} },
  ]);
  await producer.emit(run_id, ...calls, { type: "run.completed", at: at(301_000) });
  await page.goto(`${server.url}/runs/${run_id}`);
  const map = page.getByRole("img", { name: "Overview: 301 spans, 1 failed" });
  await expect(map).toBeVisible();
  const red = () =>
    map.evaluate((each) => {
      const canvas = each.querySelector("canvas")!;
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true })!;
      copy.drawImage(canvas, 0, 0);
      const { data, width } = copy.getImageData(0, 0, canvas.width, canvas.height);
      const columns = new Set<number>();
      for (let pixel = 0; pixel < data.length / 4; pixel += 1) {
        const [r = 0, g = 0, b = 0, a = 0] = data.slice(pixel * 4, pixel * 4 + 4);
        if (a > 200 && r > 150 && g < 110 && b < 110) columns.add(pixel % width);
      }
      return [...columns].map((column) => column / width);
    });
  await expect.poll(async () => (await red()).length).toBeGreaterThan(0);
  for (const place of await red()) expect(place).toBeCloseTo(200 / 301, 1);

  const box = (await map.boundingBox())!;
  await page.mouse.move(box.x + box.width * 0.5, box.y + 20);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.y + 20, { steps: 4 });
  await page.mouse.up();
  await expect(page).toHaveURL(/zoom=1[45]\d{4}[\d.]*-1[78]\d{4}/);
  await expect(page.locator("[data-mark]")).toBeVisible();
  expect(await violations(page)).toEqual([]);
  await page.getByRole("treegrid").focus();
  await page.keyboard.press("0");
  await expect(page.locator("[data-mark]")).toHaveCount(0);
});
