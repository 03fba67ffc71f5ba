import type { Page } from "@playwright/test";
import { test } from "./fixtures.ts";
import { expectEvents, upTo } from "./page.ts";
import type { NewEvent, Producer } from "./producer.ts";

const events_total = 100_000;
const batch_events = 2_000;
const live_per_s = 1_000;
const live_s = 10;

/** A third tools in steps, so that the waterfall is as long as a real one. */
function some(from: number, count: number): NewEvent[] {
  return upTo(count).map((n) => {
    const at = from + n;
    const call = Math.floor(at / 3);
    if (at % 3 === 0)
      return { type: "tool.started", span_id: `t${call}`, payload: { name: `tool ${call}`, args: { at } } };
    if (at % 3 === 1)
      return { type: "tool.completed", span_id: `t${call}`, payload: { result: "x".repeat(40) } };
    return { type: "log.info", payload: { message: `line ${at} of a long run` } };
  });
}

async function fill(producer: Producer, run_id: string): Promise<number> {
  let last = 0;
  for (let from = 0; from < events_total; from += batch_events) {
    ({ last_seq: last } = await producer.emit(run_id, ...some(from, batch_events)));
  }
  return last;
}

/** Frame times in ms while `seconds` go by; `by_px` is scrolled in every frame. */
async function frames(page: Page, selector: string, seconds: number, by_px: number): Promise<string> {
  const times = await page.locator(selector).evaluate(
    async (list, { seconds, by_px }) => {
      const times: number[] = [];
      let last = await new Promise<number>((drawn) => requestAnimationFrame(drawn));
      const end = last + seconds * 1000;
      let way = by_px;
      while (last < end) {
        list.scrollTop += way;
        if (list.scrollTop <= 0) way = Math.abs(by_px);
        if (list.scrollTop + list.clientHeight >= list.scrollHeight - 2) way = -Math.abs(by_px);
        const now = await new Promise<number>((drawn) => requestAnimationFrame(drawn));
        times.push(now - last);
        last = now;
      }
      return times.sort((a, b) => a - b);
    },
    { seconds, by_px },
  );
  const at = (part: number) =>
    (times[Math.min(times.length - 1, Math.floor(times.length * part))] ?? 0).toFixed(1);
  return `p50 ${at(0.5)}  p95 ${at(0.95)}  p99 ${at(0.99)}  max ${at(1)} ms (${times.length} frames)`;
}

async function heap(page: Page): Promise<string> {
  const debug = await page.context().newCDPSession(page);
  await debug.send("HeapProfiler.collectGarbage");
  const { usedSize } = (await debug.send("Runtime.getHeapUsage")) as { usedSize: number };
  return `${(usedSize / 1e6).toFixed(1)} MB`;
}

/** The browser's word for tasks that keep it from drawing. */
const long_ms = 50;

/** Starts to look for them; what it gives says which there were. */
async function longTasks(page: Page): Promise<() => Promise<string>> {
  await page.evaluate(() => {
    const told = ((window as unknown as { tasks: number[] }).tasks = []) as number[];
    new PerformanceObserver((seen) => told.push(...seen.getEntries().map(({ duration }) => duration))).observe({
      type: "longtask",
    });
  });
  return async () => {
    const tasks = await page.evaluate(() => (window as unknown as { tasks: number[] }).tasks);
    return tasks.length === 0 ? "none" : `${tasks.length}, the longest ${Math.max(...tasks)} ms`;
  };
}

/** Appends at a pace of so many a second. */
async function append(producer: Producer, run_id: string, from: number): Promise<void> {
  const begin = Date.now();
  const batch = live_per_s / 20;
  for (let sent = 0; sent < live_per_s * live_s; sent += batch) {
    const ahead = begin + (sent / live_per_s) * 1000 - Date.now();
    // The producer's pace, not a wait for the page.
    if (ahead > 0) await new Promise((due) => setTimeout(due, ahead));
    await producer.emit(run_id, ...some(from + sent, batch));
  }
}

const lists = [
  ["log", "[role=grid]"],
  ["timeline", "[role=treegrid]"],
] as const;

const nodes = (page: Page) => page.evaluate(() => document.querySelectorAll("*").length);

test("the run page with many events", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Long run" });
  let last = await fill(producer, run_id);
  const say = (name: string, value: string | number) => console.log(`${name.padEnd(44)} ${value}`);
  for (const [tab, list] of lists) {
    const start = Date.now();
    await page.goto(`${server.url}/runs/${run_id}?tab=${tab}`);
    await page.locator(`${list} [role=row][aria-rowindex="2"], ${list} [role=row][id]`).first().waitFor();
    say(`${tab}: first rows after`, `${Date.now() - start} ms`);
    await expectEvents(page, last);
    say(`${tab}: all ${last} events after`, `${Date.now() - start} ms`);
    await page.keyboard.press("f");
    say(`${tab}: scroll`, await frames(page, list, 4, 400));
    say(`${tab}: DOM elements`, await nodes(page));
    say(`${tab}: heap`, await heap(page));
  }
  let sent = 0;
  for (const [tab, list] of lists) {
    await page.goto(`${server.url}/runs/${run_id}?tab=${tab}`);
    await expectEvents(page, last);
    const tasks = await longTasks(page);
    const live = append(producer, run_id, events_total + sent);
    say(`${tab}: following ${live_per_s} events/s`, await frames(page, list, live_s, 0));
    await live;
    sent += live_per_s * live_s;
    last += live_per_s * live_s;
    await expectEvents(page, last);
    say(`${tab}: tasks over ${long_ms} ms meanwhile`, await tasks());
  }
  say("heap at the end", await heap(page));
});
