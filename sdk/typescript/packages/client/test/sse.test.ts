import { createParser } from "eventsource-parser";
import fc from "fast-check";
import { expect, test } from "vitest";
import { sseParser } from "../src/sse.js";

type Read = { frames: unknown[]; retries: number[] };

function ours(chunks: string[]): Read {
  const read: Read = { frames: [], retries: [] };
  const feed = sseParser(
    (type, id, data) => read.frames.push({ type, id, data }),
    (retry_ms) => read.retries.push(retry_ms),
  );
  for (const chunk of chunks) feed(chunk);
  return read;
}

/** The package that most programs read event streams with. */
function theirs(chunks: string[]): Read {
  const read: Read = { frames: [], retries: [] };
  const parser = createParser({
    onEvent: ({ event, id, data }) => read.frames.push({ type: event || "message", id: id ?? null, data }),
    onRetry: (retry_ms) => read.retries.push(retry_ms),
  });
  for (const chunk of chunks) parser.feed(chunk);
  return read;
}

const line = fc.oneof(
  fc.constantFrom(
    "",
    "",
    "",
    ": ping",
    "data",
    "data:",
    "retry: 1000",
    "retry: x",
    "id",
    "id: a\0b",
    "unknown: 1",
  ),
  fc
    .tuple(fc.constantFrom("data", "event", "id", "retry"), fc.constantFrom(":", ": ", ":  "), fc.string())
    .map((parts) => parts.join("").replace(/[\r\n]/g, "")),
);
const ending = fc.constantFrom("\n", "\n", "\r\n", "\r");
const text = fc.array(fc.tuple(line, ending)).map((lines) => `${lines.flat().join("")}\n\n`);

test("a stream is read as eventsource-parser reads it, however it is cut into chunks", () => {
  fc.assert(
    fc.property(text, fc.array(fc.integer({ min: 1, max: 9 })), (whole, sizes) => {
      const chunks: string[] = [];
      let rest = whole;
      for (const size of sizes) {
        chunks.push(rest.slice(0, size));
        rest = rest.slice(size);
      }
      chunks.push(rest);
      expect(ours(chunks)).toEqual(theirs([whole]));
    }),
    { numRuns: 500 },
  );
});

test("a frame that was cut off before its blank line is not handed on", () => {
  expect(ours(["id: 1\ndata: {}\n"]).frames).toEqual([]);
});
