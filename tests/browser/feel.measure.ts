import type { Page } from "@playwright/test";
import { expect, test } from "./fixtures.ts";
import { expectEvents, expectState, upTo } from "./page.ts";
import type { NewEvent } from "./producer.ts";

const say = (name: string, value: string | number) => console.log(`${name.padEnd(56)} ${value}`);

/** A third tools, all below one step. */
const some = (from: number, count: number): NewEvent[] =>
  upTo(count).map((n) => {
    const call = Math.floor((from + n) / 3);
    if ((from + n) % 3 === 2) return { type: "log.info", payload: { message: `line ${from + n}` } };
    const verb = (from + n) % 3 === 0 ? "started" : "completed";
    return { type: `tool.${verb}`, span_id: `t${call}`, parent_span_id: "all", payload: { name: `tool ${call}` } };
  });

/** Milliseconds from an input that the page gets until what it asks for is painted. */
const painted = (page: Page, act: string, isThere: string) =>
  page.evaluate(
    async ([act, isThere]) => {
      const frame = () => new Promise((drawn) => requestAnimationFrame(drawn));
      const [run, is] = [new Function(act as string), new Function(`return ${isThere}`)];
      await frame();
      const began = performance.now();
      run();
      while (!is()) await frame();
      await frame();
      return Math.round(performance.now() - began);
    },
    [act, isThere],
  );

/** Milliseconds from a connection of its own until the page has the first event. */
const firstEvent = async ({ run_id, after }: { run_id: string; after: number }) => {
  const [began, gone] = [performance.now(), new AbortController()];
  const headers = { "Last-Event-ID": String(after) };
  const response = await fetch(`/api/stream/runs/${run_id}`, { headers, signal: gone.signal });
  const [reader, decoder] = [(response.body as ReadableStream<Uint8Array>).getReader(), new TextDecoder()];
  for (let heard = ""; !/^id: .*\n\n/ms.test(heard); ) heard += decoder.decode((await reader.read()).value, { stream: true });
  const took = performance.now() - began;
  gone.abort();
  return took;
};

const rowCount = `document.querySelector("[role=treegrid]").getAttribute("aria-rowcount")`;
const typed = (text: string) => `
  const field = document.querySelector("input[type=search]");
  field.value = ${JSON.stringify(text)};
  field.dispatchEvent(new Event("input", { bubbles: true }));`;

// Its own functions are made in the page, which the page's policy forbids.
test.use({ bypassCSP: true });

test("what a run of 100 000 events feels like", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Long run" });
  await producer.emit(run_id, { type: "step.started", span_id: "all", payload: { name: "all" } });
  for (let from = 0; from < 99_000; from += 1_998) await producer.emit(run_id, ...some(from, 1_998));
  const { last_seq } = await producer.emit(run_id, { type: "run.completed" });
  await page.addInitScript(() => {
    const told = window as unknown as { shifted: number };
    told.shifted = 0;
    new PerformanceObserver((seen) => {
      for (const each of seen.getEntries()) told.shifted += (each as unknown as { value: number }).value;
    }).observe({ type: "layout-shift", buffered: true });
  });
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectEvents(page, last_seq);
  const all = await page.getByRole("treegrid").getAttribute("aria-rowcount");
  const fold = `document.querySelectorAll("[role=treegrid] .fold")[1].click()`;
  for (const n of upTo(3)) {
    say(`close a span with 33 000 below it, ${n}`, `${await painted(page, fold, `${rowCount} === "3"`)} ms`);
    say(`open it, ${n}`, `${await painted(page, fold, `${rowCount} === "${all}"`)} ms`);
  }
  for (const word of ["tool 31999", "tool 777 ", "nothing has this"]) {
    say(`search "${word}"`, `${await painted(page, typed(word), `${rowCount} !== "${all}"`)} ms`);
    say(`search for nothing again`, `${await painted(page, typed(""), `${rowCount} === "${all}"`)} ms`);
  }
  say("layout shift", await page.evaluate(() => (window as unknown as { shifted: number }).shifted.toFixed(4)));

  await page.evaluate(() => {
    const told = window as unknown as { drawn: number[] };
    told.drawn = [];
    const prototype = HTMLCanvasElement.prototype as unknown as { getContext: (kind: string) => unknown };
    const context = prototype.getContext;
    prototype.getContext = function (kind) {
      const began = performance.now();
      // It comes when what draws is through.
      queueMicrotask(() => told.drawn.push(performance.now() - began));
      return context.call(this, kind);
    };
  });
  for (const n of upTo(20)) {
    await page.emulateMedia({ colorScheme: n % 2 === 1 ? "dark" : "light" });
    await page.waitForFunction((count) => (window as unknown as { drawn: number[] }).drawn.length >= count, n);
  }
  const draws = await page.evaluate(() => (window as unknown as { drawn: number[] }).drawn.toSorted((a, b) => a - b));
  say("the minimap drawn", `p50 ${draws[10]?.toFixed(1)}, longest ${draws.at(-1)?.toFixed(1)} ms`);

  const requests: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  const debug = await page.context().newCDPSession(page);
  await debug.send("Performance.enable");
  const busy = async () => {
    const { metrics } = await debug.send("Performance.getMetrics");
    return metrics.find(({ name }) => name === "TaskDuration")?.value ?? 0;
  };
  await page.evaluate(() => {
    const told = window as unknown as { frames: number };
    told.frames = 0;
    const ask = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (draw) => ((told.frames += 1), ask(draw));
  });
  for (const back of [1, 10_000]) {
    const firsts: number[] = [];
    for (const _ of upTo(20)) firsts.push(await page.evaluate(firstEvent, { run_id, after: last_seq - back }));
    firsts.sort((a, b) => a - b);
    say(`first event after connecting, ${back} back`, `p50 ${firsts[10]?.toFixed(1)}, p95 ${firsts[18]?.toFixed(1)} ms`);
  }
  requests.length = 0;
  const before = await busy();
  const idle_s = 10;
  await page.waitForTimeout(idle_s * 1000);
  const share = (((await busy()) - before) / idle_s) * 100;
  const frames = await page.evaluate(() => (window as unknown as { frames: number }).frames);
  say("a finished run, 10 s", `${requests.length} requests, ${frames} frames asked for, ${share.toFixed(2)} % of a core`);
});

test("what a short run feels like", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Short run" });
  let { last_seq } = await producer.emit(run_id, ...some(0, 999));
  const rows: number[] = [];
  for (const _ of upTo(5)) {
    const began = Date.now();
    await page.goto(`${server.url}/runs/${run_id}?tab=log`);
    await page.locator("[data-seq]").first().waitFor();
    rows.push(Date.now() - began);
  }
  say("1 000 events: first rows after", `${rows.join(", ")} ms`);
  await expectState(page, "live");
  const took: number[] = [];
  for (const _ of upTo(50)) {
    last_seq += 1;
    const seen = page.evaluate(async (seq) => {
      while (document.querySelector(`[data-seq="${seq}"]`) === null) await new Promise((drawn) => requestAnimationFrame(drawn));
      return Date.now();
    }, last_seq);
    const began = Date.now();
    await producer.emit(run_id, { type: "log.info", payload: { message: "now" } });
    took.push((await seen) - began);
  }
  took.sort((a, b) => a - b);
  say("emitted until painted", `p50 ${took[25]}, p95 ${took[47]}, longest ${took[49]} ms`);
  await producer.emit(run_id, { type: "run.completed" });
  await expectState(page, "ended");
});

test("what a payload of 5 MB feels like", async ({ page, server, producer }) => {
  const run_id = await producer.createRun({ title: "Large payload" });
  const rows = upTo(30_000).map((n) => ({ id: n, name: `customer ${n}`, note: "x".repeat(110) }));
  await producer.emit(
    run_id,
    { type: "tool.started", span_id: "t1", payload: { name: "read_table" } },
    { type: "tool.completed", span_id: "t1", payload: { result: { rows } } },
  );
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  const nodes = () => page.evaluate(() => document.querySelectorAll("*").length);
  const began = Date.now();
  await page.getByRole("treegrid").getByRole("row", { name: /tool read_table/ }).click();
  await expect(page.getByRole("complementary")).toContainText("read_table");
  say("its span open after", `${Date.now() - began} ms, ${await nodes()} DOM elements`);
});
