import { beforeEach, expect, test, vi } from "vitest";
import { isRemembered, readToken, writeToken } from "./token";

const storage = () => {
  const kept = new Map<string, string>();
  return {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  };
};
/** Of another tab of the same browser. */
const another = () => vi.stubGlobal("sessionStorage", storage());

beforeEach(() => {
  vi.stubGlobal("localStorage", storage());
  another();
  return () => vi.unstubAllGlobals();
});

test("a token of one tab leaves the one that the others remember", () => {
  writeToken("alice", true);
  another();
  expect([readToken(), isRemembered()]).toEqual(["alice", true]);
  writeToken("bob");
  expect([readToken(), isRemembered()]).toEqual(["bob", false]);
  another();
  expect(readToken()).toBe("alice");
});

test("a token that is removed, or no longer to be remembered, is gone from all tabs", () => {
  writeToken("alice", true);
  writeToken("alice");
  expect(readToken()).toBe("alice");
  another();
  expect(readToken()).toBeNull();
  writeToken("alice", true);
  another();
  writeToken(null);
  another();
  expect(readToken()).toBeNull();
});

test("a token lasts as long as the page where nothing may be stored", () => {
  vi.stubGlobal("sessionStorage", undefined);
  writeToken("alice");
  expect(readToken()).toBe("alice");
  writeToken(null);
  expect(readToken()).toBeNull();
});
