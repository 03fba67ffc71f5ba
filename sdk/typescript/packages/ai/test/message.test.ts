import { readUIMessageStream, type UIMessage, type UIMessageChunk } from "ai";
import fc from "fast-check";
import { expect, test } from "vitest";
import { Message } from "../src/message.ts";

/** What happens in a run: a text grows or ends, or something else is said. */
type Op = { text: string; piece: string } | { text: string; end: true } | { chunk: UIMessageChunk };

const start = { type: "start", messageId: "m", messageMetadata: { runId: "r" } } as UIMessageChunk;
const finish = { type: "finish", finishReason: "stop" } as UIMessageChunk;
const begin = (id: string) => ({ type: "text-start", id }) as UIMessageChunk;
const more = (id: string, delta: string) => ({ type: "text-delta", id, delta }) as UIMessageChunk;
const end = (id: string) => ({ type: "text-end", id }) as UIMessageChunk;

/** What a reader hears who comes when `past` of the ops are over: those as they are stored, the others as they come. */
function heard(ops: Op[], past: number): UIMessageChunk[] {
  const out: UIMessageChunk[] = [start];
  const texts = new Map<string, string>();
  const grow = (id: string, piece: string) => texts.set(id, (texts.get(id) ?? "") + piece);
  for (const op of ops.slice(0, past)) {
    if ("chunk" in op) out.push(op.chunk);
    else if ("piece" in op) grow(op.text, op.piece);
    else if (texts.has(op.text)) {
      const whole = texts.get(op.text) as string;
      texts.delete(op.text);
      out.push(begin(op.text), ...(whole === "" ? [] : [more(op.text, whole)]), end(op.text));
    }
  }
  for (const [id, text] of texts) out.push(begin(id), ...(text === "" ? [] : [more(id, text)]));
  for (const op of ops.slice(past)) {
    if ("chunk" in op) out.push(op.chunk);
    else if ("piece" in op) {
      if (!texts.has(op.text)) out.push(begin(op.text));
      grow(op.text, op.piece);
      if (op.piece !== "") out.push(more(op.text, op.piece));
    } else if (texts.delete(op.text)) out.push(end(op.text));
  }
  return [...out, finish];
}

async function read(chunks: UIMessageChunk[]): Promise<UIMessage> {
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
  let last: UIMessage | undefined;
  for await (const message of readUIMessageStream({ stream, terminateOnError: true })) last = message;
  return last as UIMessage;
}

/**
 * In no order: a text that is said while something else happens has its place where its reader first heard of it. Without
 * the steps, of which a reader sees none that begins in the middle of a text.
 */
const parts = (message: UIMessage) =>
  message.parts.flatMap((part) => (part.type === "step-start" ? [] : [JSON.stringify(part)])).sort();

const call = (n: number): Op[] => [
  {
    chunk: {
      type: "tool-input-available",
      toolCallId: `c${n}`,
      toolName: "look",
      input: { n },
      dynamic: true,
    },
  },
  { chunk: { type: "tool-output-available", toolCallId: `c${n}`, output: n, dynamic: true } },
];
const kinds: fc.Arbitrary<Op[]>[] = [
  fc
    .tuple(fc.constantFrom("a", "b", "c"), fc.constantFrom("x", "yy", "x", "zzz", ""))
    .map(([text, piece]) => [{ text, piece }]),
  fc.constantFrom("a", "b", "c").map((text) => [{ text, end: true }]),
  fc.constant([{ chunk: { type: "start-step" } }, { chunk: { type: "finish-step" } }]),
  fc.constant([{ chunk: { type: "data-tick", data: 1 } }]),
];
/** Each text ends once, and what is said of it afterwards is a text of its own. */
const runs = fc.array(fc.oneof(...kinds), { maxLength: 30 }).map((found) => {
  const ended = new Map<string, number>();
  const named = (text: string) => `${text}${ended.get(text) ?? 0}`;
  const ops = found.flatMap((some, n) => (n % 7 === 0 ? [...some, ...call(n)] : some));
  return ops.map((op): Op => {
    if ("chunk" in op) return op;
    const text = named(op.text);
    if ("end" in op) ended.set(op.text, (ended.get(op.text) ?? 0) + 1);
    return { ...op, text };
  });
});

test("a message that was cut any number of times, anywhere, is the message", async () => {
  const cuts = fc.array(fc.tuple(fc.nat(40), fc.nat(60)), { maxLength: 5 });
  await fc.assert(
    fc.asyncProperty(runs, cuts, async (open, cuts) => {
      const texts = new Set(open.flatMap((op) => ("piece" in op ? [op.text] : [])));
      const ops: Op[] = [...open, ...[...texts].map((text): Op => ({ text, end: true }))];
      const whole = await read(heard(ops, 0));
      const message = new Message();
      const said: UIMessageChunk[] = [];
      const places = cuts.map(([past]) => Math.min(past, ops.length)).sort((a, b) => a - b);
      let from = 0;
      cuts.forEach(([, length], n) => {
        // What a connection says may end before the next one begins, and not after it.
        const until = heard(ops.slice(0, places[n]), Math.min(from, places[n] as number)).slice(0, -1);
        for (const chunk of until.slice(0, length)) said.push(...message.take(chunk));
        from = places[n] as number;
        message.again();
      });
      for (const chunk of heard(ops, from)) said.push(...message.take(chunk));
      const cut = await read(said);
      expect(parts(cut)).toEqual(parts(whole));
      expect(cut.id).toBe("m");
    }),
    { numRuns: 400 },
  );
});

const taken = (message: Message, ...chunks: UIMessageChunk[]) =>
  chunks.flatMap((chunk) => message.take(chunk));

const step = { type: "start-step" } as UIMessageChunk;
const reset = { type: "reset-step" } as UIMessageChunk;

test("a text that its writer gave up is taken back", () => {
  const message = new Message();
  taken(message, start, step, begin("t"), more("t", "Hello wor"));
  message.again();
  const again = taken(message, start, step, begin("u"), more("u", "Goodbye"), end("u"), finish);
  expect(again).toEqual([reset, begin("u"), more("u", "Goodbye"), end("u"), finish]);
});

test("a message that goes on is taken back to its last step, with the results of the page's own tools", () => {
  const had = {
    id: "m",
    role: "assistant",
    parts: [
      { type: "step-start" },
      { type: "text", text: "OK", state: "done" },
      { type: "step-start" },
      { type: "tool-where", toolCallId: "c", state: "output-available", input: {}, output: "Rome" },
    ],
  } as UIMessage;
  const asked = {
    type: "tool-input-available",
    toolCallId: "c",
    toolName: "where",
    input: {},
  } as UIMessageChunk;
  const output = { type: "tool-output-available", toolCallId: "c", output: "Rome" } as UIMessageChunk;
  const message = new Message(had);
  expect(taken(message, start, begin("u"), more("u", "S"))).toEqual([start, begin("u"), more("u", "S")]);
  message.again();
  const before = [start, step, begin("t"), more("t", "OK"), end("t"), step, asked];
  expect(taken(message, ...before)).toEqual([reset, asked, output]);
  const rest = [step, begin("u"), more("u", "Sunny"), end("u"), finish];
  expect(taken(message, ...rest)).toEqual(rest);
  message.again();
  expect(taken(message, ...before, ...rest)).toEqual([reset, ...rest.slice(1)]);
});

test("a text that is said anew is asked for once", () => {
  const message = new Message();
  taken(message, start, begin("t"), more("t", "ok"), end("t"));
  expect([begin("t"), begin("t~"), begin("t~")].map((chunk) => message.isReplacement(chunk))).toEqual([
    false,
    true,
    false,
  ]);
});

test("a message that began elsewhere is not mixed into this one", () => {
  const message = new Message();
  taken(message, start);
  message.again();
  expect(() => taken(message, { type: "start", messageId: "other" })).toThrow("went on elsewhere");
});
