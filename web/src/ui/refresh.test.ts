import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { whileSeen } from "./refresh";

let state: "visible" | "hidden";
let told: (() => void)[];

beforeEach(() => {
  vi.useFakeTimers();
  state = "visible";
  told = [];
  vi.stubGlobal("document", {
    get visibilityState() {
      return state;
    },
    addEventListener: (_: string, listener: () => void) => told.push(listener),
    removeEventListener: () => (told = []),
  });
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function turn(to: "visible" | "hidden") {
  state = to;
  for (const listener of told) listener();
}

test("the work is done at once and again, until it is over", async () => {
  const work = vi.fn(async () => undefined);
  const end = whileSeen(1_000, work);
  await vi.advanceTimersByTimeAsync(0);
  expect(work).toHaveBeenCalledTimes(1);
  await vi.advanceTimersByTimeAsync(2_000);
  expect(work).toHaveBeenCalledTimes(3);
  end();
  await vi.advanceTimersByTimeAsync(5_000);
  expect(work).toHaveBeenCalledTimes(3);
});

test("nothing is done while nobody sees the page, and at once when somebody does", async () => {
  const work = vi.fn(async () => undefined);
  whileSeen(1_000, work);
  await vi.advanceTimersByTimeAsync(0);
  turn("hidden");
  await vi.advanceTimersByTimeAsync(60_000);
  expect(work).toHaveBeenCalledTimes(1);
  turn("visible");
  await vi.advanceTimersByTimeAsync(0);
  expect(work).toHaveBeenCalledTimes(2);
});

test("who looks away and back within the time finds it as it was", async () => {
  const work = vi.fn(async () => undefined);
  whileSeen(1_000, work);
  await vi.advanceTimersByTimeAsync(100);
  turn("hidden");
  turn("visible");
  await vi.advanceTimersByTimeAsync(100);
  expect(work).toHaveBeenCalledTimes(1);
});
