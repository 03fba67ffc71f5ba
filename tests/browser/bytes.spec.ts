import { expect, test } from "./fixtures.ts";
import { expectEvents, expectState, upTo } from "./page.ts";
import type { NewEvent } from "./producer.ts";

const events_total = 20_000;
const batch_events = 2_000;
const bytes_max = 20 * events_total;

/** Calls of tools with what they were given and what came out, and what was said in between. */
function some(from: number): NewEvent[] {
  return upTo(batch_events).map((n): NewEvent => {
    const at = from + n;
    const call = Math.floor(at / 3);
    if (at % 3 === 0)
      return { type: "tool.started", span_id: `t${call}`, payload: { name: `tool_${call % 20}`, args: { at } } };
    if (at % 3 === 1)
      return { type: "tool.completed", span_id: `t${call}`, payload: { result: `${at} `.repeat(80) } };
    return { type: "log.info", payload: { message: `line ${at} of a long run`, more: "x".repeat(200) } };
  });
}

test("a run costs less than 20 bytes an event until somebody looks into it", async ({
  page,
  wire,
  producer,
}, info) => {
  const run_id = await producer.createRun({ title: "Long run" });
  for (let from = 0; from < events_total; from += batch_events) await producer.emit(run_id, ...some(from));
  const last = await producer.lastSeq(run_id);

  const began = Date.now();
  await page.goto(`${wire.url}/runs/${run_id}`);
  await page.locator("[role=treegrid] [aria-level]").first().waitFor();
  info.annotations.push({ type: "first rows after", description: `${Date.now() - began} ms` });
  await expectEvents(page, last, 60_000);
  info.annotations.push({ type: "all rows after", description: `${Date.now() - began} ms` });
  await expectState(page, "live");
  info.annotations.push({ type: "on the wire", description: `${wire.received} bytes` });
  expect(wire.received).toBeLessThan(bytes_max);

  // What is looked at is fetched, and only that.
  const before = wire.received;
  await page.goto(`${wire.url}/runs/${run_id}?tab=log&sel=10003`);
  await expect(page.getByRole("complementary").getByRole("region", { name: "Payload" })).toContainText("x".repeat(200));
  await expectEvents(page, last, 60_000);
  expect(wire.received - before).toBeLessThan(bytes_max);
  // What comes from now on is here whole, without another request.
  const requests: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  await producer.emit(run_id, { type: "log.info", payload: { message: "and one more", deep: { words: "brand new" } } });
  await page.keyboard.press("f");
  await page.locator(`[data-seq="${last + 1}"]`).click();
  await expect(page.getByRole("complementary")).toContainText("brand new");
  expect(requests.filter((url) => url.includes("/events"))).toEqual([]);
});
