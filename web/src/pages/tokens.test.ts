import { expect, test } from "vitest";
import { endOf, hasEnded, limitOf } from "./tokens";

const now_ms = Date.parse("2026-11-24T12:00:00.000000Z");

test("a token's end is told as a date, and relative when it is near or over", () => {
  const ends = [
    [null, null, "never", false],
    ["2027-01-01T00:00:00.000000Z", null, "2027-01-01", false],
    ["2026-11-24T12:00:42.000000Z", null, "in 42 s", false],
    ["2026-11-24T12:00:00.000000Z", null, "expired just now", true],
    ["2027-01-01T00:00:00.000000Z", "2026-11-24T11:58:00.000000Z", "revoked 2 m ago", true],
  ] as const;
  for (const [expires_at, revoked_at, told, isOver] of ends) {
    const token = { expires_at, revoked_at };
    expect([endOf(token, now_ms), hasEnded(token, now_ms)]).toEqual([told, isOver]);
  }
});

test("a limited token says what it is limited to", () => {
  expect(limitOf({ tree: false })).toBe("–");
  expect(limitOf({ run_id: "a", tree: false })).toBe("run");
  expect(limitOf({ run_id: "a", tree: true })).toBe("run and descendants");
  expect(limitOf({ thread_id: "t1", tree: false })).toBe("thread t1");
});
