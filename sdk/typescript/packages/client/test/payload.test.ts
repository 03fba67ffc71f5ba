import fc from "fast-check";
import { expect, test } from "vitest";
import { encoded } from "../src/payload.js";

const decoded = (value: unknown): unknown => JSON.parse(encoded(value));

test("what JSON can hold is encoded as it is, but for NULs and lone surrogates", () => {
  const isRefused = (text: string) => /\0|\p{Surrogate}/u.test(text);
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const json = JSON.stringify(value);
      fc.pre(!/\\u0000|\\ud[89a-f]/.test(json));
      expect(encoded(value)).toBe(json);
    }),
  );
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), fc.nat(3), (text, slashes) => {
      const whole = `${"\\".repeat(slashes)}\0\uD800u0000 ${text}`;
      const told = decoded({ [whole]: whole }) as Record<string, string>;
      const [[name, member] = ["", ""]] = Object.entries(told);
      expect(name).toBe(member);
      expect(isRefused(member)).toBe(false);
      expect(member).toBe(whole.replaceAll("\0", "").replace(/\p{Surrogate}/gu, ""));
    }),
  );
});

test("what is all connected to itself ends where it meets itself, and within a bound", () => {
  const node: Record<string, unknown> = {};
  Object.assign(node, { left: node, right: node, also: { up: node } });
  expect(decoded(node)).toEqual({ left: "…", right: "…", also: { up: "…" } });
  const all: object[] = Array.from({ length: 40 }, () => ({}));
  for (const each of all) Object.assign(each, all);
  expect(encoded(all).length).toBeLessThan(5_000_000);
});

test("the same object twice side by side is written twice", () => {
  const shared = { a: 1 };
  expect(decoded([shared, shared, { shared }])).toEqual([shared, shared, { shared }]);
});
