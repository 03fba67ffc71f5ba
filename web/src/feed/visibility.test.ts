import type { EventStream } from "@runreel/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { followVisibility, hiddenTab_ms } from "./visibility";

const page = Object.assign(new EventTarget(), { visibilityState: "visible" });
const source = { pause: vi.fn(), resume: vi.fn(), retryNow: vi.fn() };
let undo = () => {};

function see(state: "visible" | "hidden") {
  page.visibilityState = state;
  page.dispatchEvent(new Event("visibilitychange"));
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("document", page);
  vi.stubGlobal("window", new EventTarget());
  vi.clearAllMocks();
  undo = followVisibility(source as unknown as EventStream);
});
afterEach(() => {
  undo();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("a tab that stays hidden gives its stream back and takes it up when it is looked at", () => {
  see("hidden");
  vi.advanceTimersByTime(hiddenTab_ms - 1);
  expect(source.pause).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1);
  expect(source.pause).toHaveBeenCalledOnce();
  see("visible");
  expect(source.resume).toHaveBeenCalledOnce();
});

test("a short look elsewhere keeps the stream", () => {
  see("hidden");
  see("visible");
  vi.advanceTimersByTime(2 * hiddenTab_ms);
  expect(source.pause).not.toHaveBeenCalled();
});

test("a network that comes back ends the back-off", () => {
  window.dispatchEvent(new Event("online"));
  expect(source.retryNow).toHaveBeenCalledOnce();
});
