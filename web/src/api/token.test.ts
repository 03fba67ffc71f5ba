import { beforeEach, expect, test, vi } from "vitest";
import { isRemembered, readToken, takeToken, writeToken } from "./token";

const storage = () => {
  const kept = new Map<string, string>();
  return {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  };
};
/** Switches to another tab of the same browser. */
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

/** Opens a link with a token; `status` and `principal` are the server's answer, `answer` the person's. */
async function open(token: string, status: number, principal: object, answer: boolean) {
  const confirm = vi.fn(() => answer);
  const replaceState = vi.fn();
  vi.stubGlobal("location", { hash: `#token=${token}`, pathname: "/runs/1", search: "" });
  vi.stubGlobal("history", { state: null, replaceState });
  vi.stubGlobal("confirm", confirm);
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(JSON.stringify({ principal }), { status })));
  await takeToken();
  expect(replaceState).toHaveBeenCalledWith(null, "", "/runs/1");
  return [readToken(), confirm.mock.calls.length];
}

test("a token of a link that does more than read is taken only by who agrees", async () => {
  const may = (...scopes: string[]) => ({ is_authenticated: true, scopes });
  writeToken("own");
  expect(await open("rr_admin", 200, may("admin"), false)).toEqual(["own", 1]);
  expect(await open("rr_emit", 200, may("read", "emit"), false)).toEqual(["own", 1]);
  expect(await open("eyJ.eyJ.x", 500, {}, false)).toEqual(["own", 1]);
  expect(await open("own", 200, may("admin"), false)).toEqual(["own", 0]);
  expect(await open("rr_read", 200, may("read"), false)).toEqual(["rr_read", 0]);
  expect(await open("rr_run", 403, {}, false)).toEqual(["rr_run", 0]);
  expect(await open("rr_old", 401, {}, false)).toEqual(["rr_old", 0]);
  expect(await open("rr_admin", 200, may("admin"), true)).toEqual(["rr_admin", 1]);
});
