import { expect, test } from "vitest";
import { stateOf, valueOf, type Checkpoint } from "../api/checkpoints";
import { fromMsgpack } from "../api/msgpack";
import { patched } from "./patch";

const bytes = (...parts: (number | string)[]) =>
  new Uint8Array(
    parts.flatMap((part) => (typeof part === "string" ? [...new TextEncoder().encode(part)] : [part])),
  );

test("a patch makes another value and leaves the one it was given", () => {
  const before = { a: [1, 2], "b/c": { d: true } };
  const after = patched(before, [
    { op: "add", path: "/a/-", value: 3 },
    { op: "replace", path: "/b~1c/d", value: false },
    { op: "copy", from: "/a/0", path: "/e" },
    { op: "move", from: "/e", path: "/f" },
    { op: "remove", path: "/a/0" },
    { op: "test", path: "/f", value: 1 },
  ]);
  expect(after).toEqual({ a: [2, 3], "b/c": { d: false }, f: 1 });
  expect(before).toEqual({ a: [1, 2], "b/c": { d: true } });
});

test("a patch that does not fit is not applied in part", () => {
  for (const operation of [
    { op: "replace", path: "/nothing", value: 1 },
    { op: "remove", path: "/a/9" },
    { op: "test", path: "/a", value: 2 },
    { op: "add", path: "/toString/x", value: 1 },
    { op: "made up", path: "" },
  ]) {
    expect(() => patched({ a: [1] }, [operation])).toThrow();
  }
});

test("a patch that would grow the state without end is refused before anything is made of it", () => {
  const doubling = Array.from({ length: 40 }, (_, n) => ({ op: "copy", from: "", path: `/c${n}` }));
  const test = { op: "test", path: "", value: {} };
  expect(() => patched({ a: 1 }, [...doubling, test])).toThrow("too large");
});

test("MessagePack is read as plain data, and Python's objects by their class", () => {
  expect(fromMsgpack(bytes(0x82, 0xa1, "n", 0xcd, 1, 0, 0xa1, "l", 0x93, 0xc0, 0xc3, 0xff))).toEqual({
    n: 256,
    l: [null, true, -1],
  });
  const inner = bytes(0x93, 0xa1, "m", 0xa2, "Me", 0x81, 0xa1, "x", 1);
  expect(fromMsgpack(new Uint8Array([0xc7, inner.length, 5, ...inner]))).toEqual({ Me: { x: 1 } });
  expect(fromMsgpack(bytes(0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0))).toBe(1.5);
  for (const broken of [bytes(0xa5, "ab"), bytes(0xc1), bytes(1, 2), bytes(0xdd, 255, 255, 255, 255)]) {
    expect(() => fromMsgpack(broken)).toThrow();
  }
  expect(() => fromMsgpack(new Uint8Array(1_000).fill(0x91))).toThrow("deep");
});

test("a checkpoint's state is that of its channels, and what is no plain data says what it is", () => {
  const checkpoint = {
    checkpoint: { t: "json", b: btoa('{"v":1,"channel_values":{"step":2}}') },
    blobs: { messages: { version: "1", t: "json", b: btoa('["Hi"]') } },
  } as unknown as Checkpoint;
  expect(stateOf(checkpoint)).toEqual({ step: 2, messages: ["Hi"] });
  expect(valueOf({ t: "pickle", b: btoa("abc") })).toBe("pickle, 3 bytes");
  expect(valueOf({ t: "empty" })).toBeNull();
});
