import { expect, test } from "vitest";
import { fromMsgpack } from "./msgpack";

const packed = (...bytes: number[]) => fromMsgpack(new Uint8Array(bytes));
const text = (word: string) => [0xa0 + word.length, ...new TextEncoder().encode(word)];

test("MessagePack is read: numbers of all sizes, texts, lists, maps", () => {
  expect(packed(0x82, ...text("a"), 0x92, 1, 0xff, ...text("b"), 0xc2)).toEqual({ a: [1, -1], b: false });
  expect(packed(0xcd, 1, 0)).toBe(256);
  expect(packed(0xd1, 0xff, 0x00)).toBe(-256);
  expect(packed(0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0)).toBe(1.5);
  expect(packed(0xcf, 0, 0, 0, 1, 0, 0, 0, 0)).toBe(2 ** 32);
  expect(packed(0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)).toBe("18446744073709551615");
  expect(packed(0xd9, 3, 97, 98, 99)).toBe("abc");
  expect(packed(0xc4, 2, 0, 0)).toBe("2 bytes");
  expect(packed(0xdc, 0, 2, 1, 2)).toEqual([1, 2]);
});

test("a class of Python is its name and what it was made of", () => {
  const held = [0x93, ...text("m"), ...text("Human"), 0x81, ...text("x"), 7];
  expect(packed(0xc7, held.length, 5, ...held)).toEqual({ Human: { x: 7 } });
  expect(packed(0xd4, 1, 0xc1)).toBe("extension 1, 1 bytes");
});

test("what cannot be read is an error, and never runs on", () => {
  expect(() => packed(0xdb, 0xff, 0xff, 0xff, 0xff)).toThrow();
  expect(() => packed(0xdd, 0xff, 0xff, 0xff, 0xff)).toThrow();
  expect(() => packed(0xcb, 1)).toThrow();
  expect(() => packed(1, 2)).toThrow();
  expect(() => packed(0xc1)).toThrow();
});
