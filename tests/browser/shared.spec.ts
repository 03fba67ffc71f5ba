import type { BrowserContext, Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import { expectEvents, expectPrompt, expectState, seqsInList, upTo } from "./page.ts";

test.use({ allowsCuts: true });

const line = (n: number) => ({ type: "log.info", payload: { message: `line ${n}` } });

/** Browsers without workers that tabs share: one of the tabs has the connection. */
const withoutWorker = (context: BrowserContext) =>
  context.addInitScript(() => {
    Reflect.deleteProperty(globalThis, "SharedWorker");
  });

async function tabs(context: BrowserContext, count: number, open: (page: Page, at: number) => Promise<void>) {
  const pages: Page[] = [];
  const took_ms: number[] = [];
  for (let at = 0; at < count; at += 1) {
    const page = await context.newPage();
    const began = Date.now();
    await open(page, at);
    took_ms.push(Date.now() - began);
    pages.push(page);
  }
  return { pages, took_ms };
}

for (const kind of ["a shared worker", "one of the tabs"] as const) {
  const title = `ten tabs have one connection for their streams, by ${kind}, and the tenth shows its page as soon as the others`;
  test(title, { tag: "@alone" }, async ({ context, wire, producer }, info) => {
    if (kind === "one of the tabs") await withoutWorker(context);
    const runs: string[] = [];
    for (const n of upTo(5)) runs.push(await producer.createRun({ title: `Reader ${n}` }));
    const { pages, took_ms } = await tabs(context, 10, async (page, at) => {
      await page.goto(at % 2 === 0 ? `${wire.url}/runs/${runs[at / 2]}` : wire.url);
      await expect(page.getByText(at % 2 === 0 ? `Reader ${at / 2 + 1}` : "Reader 5").first()).toBeVisible();
      await expectState(page, "live");
    });
    expectPrompt(took_ms, info);
    await expect.poll(() => wire.streams).toBe(1);
    // All of them are told of what happens, each of its own.
    await producer.emit(runs[0]!, { type: "run.failed", payload: { error: "no" } });
    await expect(pages[0]!.locator("header .badge").first()).toHaveText("failed");
    for (const page of pages.filter((_, at) => at % 2 === 1))
      await expect(page.locator(`[data-run="${runs[0]}"]`)).toContainText("failed");
    await expect(pages[2]!.locator("header .badge").first()).toHaveText("running");
    expect(wire.streams).toBe(1);
    for (const page of pages) await page.close();
    await expect.poll(() => wire.streams).toBe(0);
  });

  test(`a server that is killed again and again costs no tab an event, and doubles none, by ${kind}`, async ({
    context,
    server,
    producer,
  }) => {
    test.setTimeout(180_000);
    if (kind === "one of the tabs") await withoutWorker(context);
    const run_id = await producer.createRun({ title: "Killed often" });
    const { pages } = await tabs(context, 4, async (page) => {
      await page.goto(`${server.url}/runs/${run_id}?tab=log`);
      await expectState(page, "live");
    });
    let last = 0;
    for (const round of upTo(4)) {
      ({ last_seq: last } = await producer.emit(run_id, ...upTo(40).map((n) => line(round * 100 + n))));
      await server.kill();
      await server.up();
      ({ last_seq: last } = await producer.emit(run_id, ...upTo(40).map((n) => line(round * 100 + 50 + n))));
    }
    for (const page of pages) {
      await expectEvents(page, last);
      await expectState(page, "live");
      await page.bringToFront();
      expect(await seqsInList(page)).toEqual(upTo(last));
    }
  });
}

test("the tab that has the connection is closed, and the others go on with another", async ({
  context,
  wire,
  producer,
}) => {
  await withoutWorker(context);
  const run_id = await producer.createRun({ title: "Led" });
  const { pages } = await tabs(context, 3, async (page) => {
    await page.goto(`${wire.url}/runs/${run_id}?tab=log`);
    await expectState(page, "live");
  });
  let last = 2;
  while (pages.length > 1) {
    await pages.shift()?.close();
    ({ last_seq: last } = await producer.emit(run_id, ...upTo(20).map(line)));
    for (const page of pages) {
      await expectEvents(page, last);
      await expectState(page, "live");
    }
    await expect.poll(() => wire.streams).toBe(1);
  }
  expect(await seqsInList(pages[0]!)).toEqual(upTo(last));
});

test("a page that is left gives its streams back, and one that is come back to has them again", async ({
  page,
  wire,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Left" });
  await page.goto(`${wire.url}/runs/${run_id}`);
  await expectState(page, "live");
  await page.goto(`${wire.url}/docs/guide`);
  await expect.poll(() => wire.streams).toBe(0);
  await page.goBack();
  await expectState(page, "live");
  await producer.emit(run_id, { type: "run.completed" });
  await expect(page.locator("header .badge").first()).toHaveText("completed");
});
