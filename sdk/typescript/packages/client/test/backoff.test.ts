import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { backoff, ceiling_ms, floor_ms, isPassing, retryAfterMs } from "../src/backoff.js";

describe("waiting before a reconnect", () => {
  test("stays between the floor and the ceiling for every attempt", () => {
    fc.assert(
      fc.property(
        fc.nat(1000),
        fc.nat(100_000),
        fc.double({ min: 0, max: 0.999, noNaN: true }),
        (n, base, random) => {
          const delay = backoff(n, base, random);
          expect(delay).toBeGreaterThanOrEqual(floor_ms);
          expect(delay).toBeLessThanOrEqual(ceiling_ms);
        },
      ),
    );
  });

  test("doubles its range until the ceiling", () => {
    const most = [0, 1, 2, 10].map((attempt) => backoff(attempt, 250, 1));
    expect(most).toEqual([250, 500, 1000, 15_000]);
  });

  test("never comes before Retry-After", () => {
    expect(backoff(0, 250, 0, 20_000)).toBe(20_000);
  });

  test("what may be answered otherwise later is asked for again, and nothing else", () => {
    const statuses = [0, 200, 400, 401, 403, 404, 408, 409, 422, 425, 429, 500, 502, 503, 504];
    expect(statuses.filter(isPassing)).toEqual([0, 408, 425, 429, 500, 502, 503, 504]);
  });

  test("Retry-After is read as seconds, as a date, or as nothing", () => {
    expect(retryAfterMs("3", 0)).toBe(3000);
    expect(retryAfterMs("Thu, 01 Jan 1970 00:00:09 GMT", 4000)).toBe(5000);
    expect(retryAfterMs("soon", 0)).toBe(0);
    expect(retryAfterMs(null, 0)).toBe(0);
    expect(retryAfterMs(" ", 0)).toBe(0);
    expect(retryAfterMs("-1", 0)).toBe(0);
    expect(retryAfterMs("99999999999", 0)).toBe(86_400_000);
  });
});
