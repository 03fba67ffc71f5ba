import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";
import { Program } from "./producer.ts";

test("a run whose program is killed turns to stalled on an open page, without a request, and back", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Will be killed", lease_ms: 1_000 });
  const program = new Program(server.url, run_id, 200);
  try {
    await program.beats(2);
    await page.goto(`${server.url}/runs/${run_id}`);
    await expectState(page, "live");
    const badge = page.locator("header .badge").first();
    await expect(badge).toHaveText("running");
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    program.kill();
    await expect(badge).toHaveText("stalled");
    await expect(page).toHaveTitle(/^! /);
    expect(asked.filter((url) => url.endsWith(run_id))).toEqual([]);
    // Any event of it ends the silence.
    await producer.emit(run_id, { type: "log.info", payload: { message: "back" } });
    await expect(badge).toHaveText("running");
  } finally {
    program.kill();
  }
});

test("a page that is opened on a stalled run says so, and that a heartbeat has ended it", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Silent", lease_ms: 1_000 });
  await expect
    .poll(async () => ((await (await fetch(`${server.url}/api/runs/${run_id}`)).json()) as { stalled: boolean }).stalled)
    .toBe(true);
  await page.goto(`${server.url}/runs/${run_id}`);
  const badge = page.locator("header .badge").first();
  await expect(badge).toHaveText("stalled");
  const program = new Program(server.url, run_id, 200);
  try {
    await expect(badge).toHaveText("running");
  } finally {
    program.kill();
  }
});

test("the bars of a run that fell silent end where its last event is", async ({ page, server, producer }) => {
  const ago = (ms: number) => new Date(Date.now() - ms).toISOString();
  const run_id = await producer.createRun({ title: "Silent", lease_ms: 1_000, start: true, at: ago(600_000) });
  await producer.emit(run_id, {
    type: "tool.started",
    span_id: "a",
    payload: { name: "search" },
    at: ago(540_000),
  });
  await expect
    .poll(async () => ((await (await fetch(`${server.url}/api/runs/${run_id}`)).json()) as { stalled: boolean }).stalled)
    .toBe(true);
  await page.goto(`${server.url}/runs/${run_id}`);
  await expect(page.locator("header .badge").first()).toHaveText("stalled");
  const rows = page.getByRole("treegrid").getByRole("row");
  // A minute of ten.
  await expect(rows.filter({ hasText: "Silent" })).toContainText(/1 m 0\d s/);
});
