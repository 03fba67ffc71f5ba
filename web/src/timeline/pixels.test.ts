import { expect, test } from "vitest";
import { pixelsOf, undrawable } from "./pixels";

const bytes = (...parts: (string | number)[]) =>
  Uint8Array.from(
    parts.flatMap((part) => (typeof part === "string" ? [...part].map((c) => c.charCodeAt(0)) : [part])),
  );
const zeros = (count: number): number[] => Array<number>(count).fill(0);
const big = (value: number) => [24, 16, 8, 0].map((bits) => (value >> bits) & 255);
const png = (width: number, height: number) =>
  bytes(0x89, "PNG", 13, 10, 26, 10, 0, 0, 0, 13, "IHDR", ...big(width), ...big(height), 8, 2);
const jpeg = bytes(0xff, 0xd8, 0xff, 0xe1, 0, 6, 0xff, 0xc0, 9, 9, 0xff, 0xff, 0xc2, 0, 17, 8, 1, 0, 2, 0);
const gif = bytes(
  "GIF89a",
  2,
  0,
  3,
  0,
  0x80,
  0,
  0,
  ...zeros(6),
  0x21,
  0xf9,
  1,
  7,
  0,
  0x2c,
  0,
  0,
  0,
  0,
  0,
  1,
  0,
  1,
);

test("how many pixels an image has is read from its head", () => {
  const riff = (kind: string, ...rest: number[]) =>
    bytes("RIFF", 0, 0, 0, 0, "WEBP", kind, 0, 0, 0, 0, ...rest);
  const pixels = (image: Uint8Array) => pixelsOf(new DataView(image.buffer));
  expect(pixels(png(70_000, 50_000))).toBe(3_500_000_000);
  expect(pixels(jpeg)).toBe(256 * 512);
  expect(pixels(gif)).toBe(256 * 256);
  expect(pixels(bytes("BM", ...zeros(16), 4, 0, 0, 0, 253, 255, 255, 255))).toBe(12);
  expect(pixels(riff("VP8X", 0, 0, 0, 0, 255, 255, 0, 9, 0, 1))).toBe(65_536 * 65_546);
  expect(pixels(riff("VP8 ", ...zeros(6), 16, 0, 32, 0))).toBe(512);
  expect(pixels(riff("VP8L", 0x2f, 0xff, 0xff, 0xff, 0x0f))).toBe(16_384 * 16_384);
});

test("what is no image, or has an end before its head has, has no number of pixels", () => {
  const pixels = (image: Uint8Array) => pixelsOf(new DataView(image.buffer));
  expect(pixels(bytes())).toBeNull();
  expect(pixels(bytes("no image"))).toBeNull();
  expect(pixels(bytes(0xff, 0xd8, 0xff, 1, ...jpeg.slice(2)))).toBeNull();
  for (const whole of [png(1, 1), jpeg, gif])
    for (const end of [1, 3, 9, 15]) expect(pixels(whole.slice(0, end))).toBeNull();
});

test("an image with too many pixels is not drawn, nor one of unknown size", async () => {
  const blob = (image: Uint8Array<ArrayBuffer>) => new Blob([image]);
  expect(await undrawable(blob(png(5_000, 8_000)))).toBeNull();
  expect(await undrawable(blob(png(5_001, 8_000)))).toMatch(/too many pixels/);
  expect(await undrawable(blob(bytes("no image")))).toMatch(/cannot be read/);
});
