import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import { cardText, expectState, upTo } from "./page.ts";
import type { NewEvent } from "./producer.ts";

/** How far the end is below what is seen, once nothing moves any more. */
async function distance(page: Page, list: string): Promise<number> {
  return page.locator(list).evaluate(async (box) => {
    let seen = "";
    for (;;) {
      await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
      const now = `${box.scrollHeight} ${box.clientHeight} ${box.scrollTop}`;
      if (now === seen) return Math.round(box.scrollHeight - box.clientHeight - box.scrollTop);
      seen = now;
    }
  });
}

const long = upTo(60)
  .map((n) => `## Part ${n}\n\n- one\n- two\n\n| a | b |\n|---|---|\n| ${n} | 2 |`)
  .join("\n\n");

const call = (n: number): NewEvent[] => [
  { type: "tool.started", span_id: `t${n}`, payload: { name: `call_${n}` } },
  { type: "tool.completed", span_id: `t${n}`, payload: { result: "ok" } },
];

for (const [tab, list] of [
  ["output", ".output"],
  ["log", "[role=grid]"],
  ["timeline", "[role=treegrid]"],
] as const) {
  test(`who follows is at the end after every kind of event, in the ${tab}`, async ({ page, server, producer }) => {
    const run_id = await producer.createRun({ title: "Follow" });
    await producer.emit(run_id, ...upTo(40).flatMap(call));
    await page.goto(`${server.url}/runs/${run_id}?tab=${tab}`);
    await expectState(page, "live");
    const following = page.getByRole("button", { name: "Following" });
    const steps: [string, NewEvent[]][] = [
      ["words", [producer.token("m1", long)]],
      ["tools in between", upTo(8).flatMap((n) => call(100 + n))],
      ["more words", [producer.token("m1", "\n\nThe end.")]],
      ["a message", [{ type: "message.completed", span_id: "m1", payload: { text: `${long}\n\nThe end.` } }]],
      ["a question", [{ type: "interrupt.requested", span_id: "i1", payload: { kind: "question", prompt: "Go on?" } }]],
      ["a pause", [{ type: "run.interrupted" }]],
      ["an answer", [{ type: "run.resumed" }]],
      ["an error", [{ type: "tool.failed", span_id: "t900", payload: { name: "x", error: "no" } }]],
      ["an artifact", [{ type: "log.info", payload: { message: "saved" } }]],
      ["the end", [{ type: "run.completed", payload: { output: long } }]],
    ];
    for (const [what, events] of steps) {
      const { last_seq } = await producer.emit(run_id, ...events);
      if (what !== "words" && what !== "more words")
        await expect.poll(() => page.locator("[data-event-count]").getAttribute("data-event-count")).toBe(`${last_seq}`);
      else if (tab === "output") await expect(cardText(page, "m1")).toContainText(what === "words" ? "Part 60" : "The end.");
      expect(await distance(page, list), what).toBe(0);
      await expect(following, what).toBeVisible();
    }
    await expect(page.getByRole("region", { name: "The answer" })).toBeVisible();
    expect(await distance(page, list), "the answer").toBe(0);
  });
}

test("a text stays above what was called while it was written", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "In between" });
  await page.goto(`${server.url}/runs/${run_id}?tab=output`);
  await expectState(page, "live");
  await producer.emit(run_id, producer.token("m1", "First this."));
  await expect(cardText(page, "m1")).toHaveText("First this.");
  await producer.emit(run_id, ...call(1));
  const items = page.locator(".items > *");
  await expect(items.nth(1)).toContainText("call_1");
  await producer.emit(run_id, { type: "message.completed", span_id: "m1", payload: { text: "First this." } });
  await expect(page.locator("article[data-open=false]")).toHaveCount(1);
  await expect(items.first()).toContainText("First this.");
  await expect(items.nth(1)).toContainText("call_1");
});
