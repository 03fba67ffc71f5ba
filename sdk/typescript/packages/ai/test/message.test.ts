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

/** In no order: a text that is said while something else happens has its place where its reader first heard of it. */
const parts = (message: UIMessage) => message.parts.map((part) => JSON.stringify(part)).sort();

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

test("a text that turned out to be another one ends, and the other begins", () => {
  const message = new Message();
  taken(message, start, begin("t"), more("t", "Hello wor"));
  message.again();
  const again = taken(message, start, begin("t"), more("t", "Goodbye"), end("t"), finish);
  expect(again).toEqual([end("t"), begin("t~"), more("t~", "Goodbye"), end("t~"), finish]);
  message.again();
  expect(taken(message, start, begin("t"), more("t", "Goodbye"), end("t"))).toEqual([]);
});

test("a text that is shorter than what was shown of it is said anew", () => {
  const message = new Message();
  taken(message, start, begin("t"), more("t", "Hello wor"));
  message.again();
  const again = taken(message, start, begin("t"), more("t", "Hello"), end("t"), finish);
  expect(again).toEqual([end("t"), begin("t~"), more("t~", "Hello"), end("t~"), finish]);
});

test("a server's own way to say a text anew is understood, and remembered", () => {
  const message = new Message();
  taken(message, start, begin("t"), more("t", "Hello wor"));
  const anew = taken(message, end("t"), begin("t~"), more("t~", "Goodbye"), end("t~"), finish);
  expect(anew).toEqual([end("t"), begin("t~"), more("t~", "Goodbye"), end("t~"), finish]);
  message.again();
  expect(taken(message, start, begin("t"), more("t", "Goodbye"), end("t"))).toEqual([]);
});

test("pieces of a server that forgot how a text began are not shown: the whole text goes on with what is there", () => {
  const message = new Message();
  taken(message, start, begin("t"), more("t", "I lo"));
  message.again();
  expect(taken(message, start, begin("t"), more("t", "ok"), end("t"), begin("t~"))).toEqual([]);
  expect(taken(message, more("t~", "I look"), end("t~"))).toEqual([more("t", "ok"), end("t")]);
});

test("a message that goes on is not said again from before the answer", () => {
  const had = {
    id: "m",
    role: "assistant",
    metadata: { runId: "r" },
    parts: [
      { type: "step-start" },
      { type: "text", text: "OK", state: "done" },
      {
        type: "dynamic-tool",
        toolName: "rm",
        toolCallId: "c",
        state: "approval-responded",
        input: {},
        approval: { id: "c", approved: true },
      },
    ],
  } as UIMessage;
  const asked = {
    type: "tool-input-available",
    toolCallId: "c",
    toolName: "rm",
    input: {},
  } as UIMessageChunk;
  const request = { type: "tool-approval-request", approvalId: "c", toolCallId: "c" } as UIMessageChunk;
  const output = { type: "tool-output-available", toolCallId: "c", output: 1 } as UIMessageChunk;
  const step = [{ type: "start-step" }, { type: "finish-step" }] as UIMessageChunk[];
  const message = new Message(had);
  expect(taken(message, output, begin("t2"), more("t2", "O"))).toEqual([
    output,
    begin("t2"),
    more("t2", "O"),
  ]);
  message.again();
  const before = [start, step[0]!, begin("t1"), more("t1", "OK"), end("t1"), asked, request, step[1]!];
  expect(taken(message, ...before)).toEqual([]);
  const rest = taken(message, output, ...step, begin("t2"), more("t2", "OK"), end("t2"), finish);
  expect(rest).toEqual([...step, more("t2", "K"), end("t2"), finish]);
});

test("a message that began elsewhere is not mixed into this one", () => {
  const message = new Message();
  taken(message, start);
  message.again();
  expect(() => taken(message, { type: "start", messageId: "other" })).toThrow("went on elsewhere");
});
