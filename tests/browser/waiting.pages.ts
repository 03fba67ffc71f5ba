import { expect, test } from "./fixtures.ts";
import type { NewEvent, Producer } from "./producer.ts";

/** A call of three seconds; then one of a second, in the middle of which a person thinks for ten. */
async function askedRun(producer: Producer): Promise<string> {
  const now_ms = Date.now();
  const ago = (seconds: number) => new Date(now_ms - seconds * 1000).toISOString();
  const run_id = await producer.createRun({ title: "Book a flight", agent: "planner", at: ago(20) });
  const events: [number, NewEvent][] = [
    [19, { type: "tool.started", span_id: "t1", payload: { name: "search" } }],
    [16, { type: "tool.completed", span_id: "t1", payload: { name: "search", result: "found" } }],
    [11, { type: "tool.started", span_id: "t2", payload: { name: "book", args: { seat: "12A" } } }],
    [10, { type: "interrupt.requested", span_id: "i1", payload: { kind: "approval", prompt: "Book it?" } }],
    [10, { type: "run.interrupted", payload: { reason: "approval" } }],
  ];
  await producer.emit(run_id, ...events.map(([seconds, event]) => ({ ...event, at: ago(seconds) })));
  await producer.resume(run_id, { interrupt_id: "i1", decision: "approve" });
  const response = await fetch(`${producer.url()}/api/runs/${run_id}/events?types=run.resumed`);
  const [resumed] = ((await response.json()) as { events: { at: string }[] }).events;
  const { at } = resumed ?? {};
  await producer.emit(
    run_id,
    { type: "tool.completed", span_id: "t2", payload: { name: "book", result: "booked" }, at },
    { type: "run.completed", at },
  );
  return run_id;
}

test("the time that a person thought is told apart, and is not the tool's in the waterfall, the figures and SQL", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await askedRun(producer);
  await page.goto(`${server.url}/runs/${run_id}`);
  const rows = page.getByRole("treegrid").getByRole("row");
  const took = (name: RegExp) => rows.filter({ hasText: name }).getByRole("gridcell").nth(1);
  await expect(took(/tool search/)).toHaveText("3.0 s");
  await expect(took(/tool book/)).toHaveText("1.0 s");
  await expect(page.locator("header")).toContainText("tools 4.0 s");
  await expect(page.locator("header")).toContainText(/waiting 1\d\.\d s/);
  // On the run's own bar it is a stretch of its own: ten of twenty seconds.
  const [bar, held] = await rows
    .filter({ hasText: /run Book a flight/ })
    .locator(".bar")
    .evaluateAll((bars) => bars.map((each) => each.getBoundingClientRect().width));
  expect(held! / bar!).toBeCloseTo(0.5, 1);

  await page.goto(`${server.url}/insights`);
  const slowest = page.getByRole("region", { name: "The slowest tools", exact: true }).locator("tbody tr");
  await expect(slowest).toHaveCount(2);
  await expect(slowest.first()).toContainText("search");
  await expect(slowest.nth(1)).toContainText("book");
  await expect(slowest.nth(1)).toContainText("1.0 s");

  const query = "select name, duration_ms::int, waiting_ms::int >= 10000 as has_waited from tool_calls order by 1";
  await page.goto(`${server.url}/sql?q=${encodeURIComponent(query)}`);
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await expect(page.locator("[data-rows]")).toHaveAttribute("data-rows", "2");
  await expect(page.getByRole("row", { name: /book/ })).toContainText(/1,?000\s*true/);
});
