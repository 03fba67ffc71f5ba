import { beforeEach, expect, test, vi } from "vitest";
import { RunCounts } from "./histogram.svelte";
import { inbox } from "./inbox.svelte";

interface Look {
  signal: AbortSignal;
  answer: (value: unknown) => void;
}

const { looks, look } = vi.hoisted(() => {
  const looks: Look[] = [];
  return {
    looks,
    look: (signal: AbortSignal) =>
      new Promise((answer, refuse) => {
        looks.push({ signal, answer });
        signal.addEventListener("abort", () => refuse(signal.reason));
      }),
  };
});
vi.mock("../api/interrupts", () => ({ openInterrupts: look }));
vi.mock("../api/runlists", () => ({ histogramOf: (_: unknown, signal: AbortSignal) => look(signal) }));
vi.mock("./follower", () => ({ follow: () => ({ stop: () => undefined }) }));

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("document", { visibilityState: "visible" });
  looks.length = 0;
  return () => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  };
});
const answer = async (value: unknown) => {
  looks.at(-1)?.answer(value);
  await vi.advanceTimersByTimeAsync(0);
};
const question = (interrupt_id: string) => ({ run_id: "r", interrupt_id });

test("an inbox whose server is slow is answered while questions come, and then looked at once more", async () => {
  for (let n = 0; n < 10; n += 1) {
    inbox.hear("interrupt.requested");
    await vi.advanceTimersByTimeAsync(300);
  }
  expect(looks).toHaveLength(1);
  await answer({ interrupts: [question("a")], isMore: false });
  expect(inbox.list).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(looks).toHaveLength(2);
  await answer({ interrupts: [question("a"), question("b")], isMore: false });
  expect(inbox.list).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(looks).toHaveLength(2);
});

test("what another person was told is not taken", async () => {
  inbox.look();
  await vi.advanceTimersByTimeAsync(0);
  looks[0]?.answer({ interrupts: [question("theirs")], isMore: false });
  inbox.forget();
  await vi.advanceTimersByTimeAsync(0);
  expect(inbox.list).toEqual([]);
  expect(looks).toHaveLength(2);
  await answer({ interrupts: [question("own")], isMore: false });
  expect(inbox.list).toEqual([question("own")]);
});

test("counts that take long are shown while runs change, and then counted once more", async () => {
  const counts = new RunCounts();
  counts.ask({ agent: "a" });
  for (let n = 0; n < 10; n += 1) {
    counts.touch();
    await vi.advanceTimersByTimeAsync(1_000);
  }
  expect(looks).toHaveLength(1);
  await answer("first");
  expect(counts.answer).toBe("first");
  await vi.advanceTimersByTimeAsync(2_000);
  expect(looks).toHaveLength(2);
  // Another question does not wait for the answer to the one before.
  counts.ask({ agent: "b" });
  expect(looks.map(({ signal }) => signal.aborted)).toEqual([false, true, false]);
  await answer("other");
  expect(counts.answer).toBe("other");
  counts.stop();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(looks).toHaveLength(3);
});
