import { beforeEach, expect, test, vi } from "vitest";
import type { Asked, Said } from "./hub";

interface Worker {
  asked: Asked[];
  say: (said: Said) => void;
  onerror: () => void;
}

const { workers } = vi.hoisted(() => {
  const workers: Worker[] = [];
  vi.stubGlobal("addEventListener", () => undefined);
  vi.stubGlobal("navigator", {});
  vi.stubGlobal(
    "SharedWorker",
    class {
      asked: Asked[] = [];
      onerror = () => undefined;
      say = (data: Said) => this.port.onmessage({ data });
      port = {
        onmessage: (_: { data: Said }) => undefined as void,
        postMessage: (asked: Asked) => void this.asked.push(asked),
      };
      constructor() {
        workers.push(this);
      }
    },
  );
  return { workers };
});
vi.mock("./hubworker?sharedworker&url", () => ({ default: "/worker.js" }));

beforeEach(() => {
  vi.useFakeTimers();
  return () => void vi.useRealTimers();
});
const after = (ms: number) => vi.advanceTimersByTimeAsync(ms);

test("a worker that died is replaced, and one that speaks is not", async () => {
  const { shared } = await import("./shared");
  const open = () => {
    const failed = vi.fn();
    const opened = shared.open("/api/stream/runs/r1", null, new AbortController().signal);
    opened.catch(failed);
    return failed;
  };
  const first = open();
  await after(0);
  const [asked] = workers[0]?.asked ?? [];
  if (asked?.kind !== "open") throw new Error("not asked");
  workers[0]?.say({ kind: "answer", id: asked.id, status: 200, text: "" });
  await after(60_000);
  expect(first).not.toHaveBeenCalled();

  // The worker is killed without notice.
  const second = open();
  await after(11_000);
  expect(second).not.toHaveBeenCalled();
  await after(2_000);
  expect(second).toHaveBeenCalled();
  expect(workers).toHaveLength(1);
  const third = open();
  await after(0);
  expect(workers).toHaveLength(2);
  expect(workers[1]?.asked.map(({ kind }) => kind)).toEqual(["open"]);
  workers[1]?.say({ kind: "again" });
  await after(60_000);
  expect(third).not.toHaveBeenCalled();
  expect(workers).toHaveLength(2);
});
