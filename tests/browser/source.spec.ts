import { expect, test } from "./fixtures.ts";

/** What lines, fields, decoders and parsers break on. */
const AWKWARD = [
  ...["", " ", "  two", "tail ", "\t", "\n", "\r", "\r\n", "\n\n", "\r\r", "a\nb\rc\r\nd"],
  ...["data: x\n\n", "id: 7", ":", ": comment\n", "event: stream.end\ndata: {}\n\n", "retry: 1", "null", "[DONE]"],
  ...["\ufeff", "\u200b", "\u202e", "\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u0001", "\u001b[31m", "\u007f"],
  ...["\ufffd", "\uffff", "\u{10ffff}", "a\u0300", "👩‍👩‍👧‍👦", "社會科學院", "ﷺ", "İıŞş", "Z̮̞̠͙͔ͅA̷̙LGO"],
  ...["\\", '"', "\\u0000", "</script>", "\\n", "%00", "x".repeat(60_000), "\n".repeat(3_000), "é".repeat(9_999)],
];

interface Heard {
  id: string;
  data: string;
}

test("the browser's own EventSource hears every string as it was sent, from the log and live", async ({
  page,
  server,
  producer,
}) => {
  const run_id = await producer.createRun({ title: "Strings" });
  const events = AWKWARD.map((text) => ({ type: "custom.text", payload: { text } }));
  await producer.emit(run_id, ...events);
  const before = await producer.lastSeq(run_id);
  await page.goto(server.url);
  await page.evaluate((url) => {
    const heard: Heard[] = [];
    Object.assign(globalThis, { heard });
    const source = new EventSource(url);
    for (const type of ["custom.text", "message.delta"])
      source.addEventListener(type, ({ lastEventId, data }) => heard.push({ id: lastEventId, data: data as string }));
  }, `${server.url}/api/stream/runs/${run_id}`);
  const heard = () => page.evaluate(() => (globalThis as unknown as { heard: Heard[] }).heard);
  await expect.poll(async () => (await heard()).length).toBe(AWKWARD.length);
  for (const event of events) await producer.emit(run_id, event);
  const said = AWKWARD.filter((text) => text !== "");
  for (const text of said) await producer.emit(run_id, { type: "message.delta", span_id: "m", payload: { text } });
  const count = 2 * AWKWARD.length + said.length;
  await expect.poll(async () => (await heard()).length).toBe(count);
  const all = await heard();
  const texts = all.map(({ data }) => (JSON.parse(data) as { payload: { text: string } }).payload.text);
  expect(texts).toEqual([...AWKWARD, ...AWKWARD, ...said]);
  const ids = all.slice(0, 2 * AWKWARD.length).map(({ id }) => Number(id));
  expect(ids).toEqual(ids.map((_, at) => before - AWKWARD.length + 1 + at));
});
