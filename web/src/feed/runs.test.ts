import type { Query, Run, RunEvent, RunPage } from "@runreel/client";
import { beforeEach, expect, test, vi } from "vitest";
import type { FollowerOptions } from "./follower";
import { RunsStore } from "./runs.svelte";
import { atAfter, event, told } from "./testing";

const { answers, feeds, list } = vi.hoisted(() => {
  const answers: ((page: RunPage) => void)[] = [];
  return {
    answers,
    feeds: [] as FollowerOptions[],
    list: () => new Promise<RunPage>((resolve) => answers.push(resolve)),
  };
});
vi.mock("../api/client", () => ({ runs: { list } }));
vi.mock("./follower", () => ({
  follow: (options: FollowerOptions) => {
    feeds.push(options);
    return { stream: { retryNow: () => undefined }, stop: () => undefined };
  },
}));

beforeEach(() => {
  vi.useFakeTimers();
  answers.length = feeds.length = 0;
  return () => void vi.useRealTimers();
});

const run = (run_id: string, over: Partial<Run> = {}): Run =>
  ({ run_id, status: "running", last_seq: 1, created_at: atAfter(0), started_at: null, ...over }) as Run;
const page = (runs: Run[], next_cursor: string | null = null) => ({ runs, next_cursor }) as RunPage;
const settled = () => vi.advanceTimersByTimeAsync(0);

/** A list with its feed at its end, and the first page asked for. */
async function store(query: Query = {}) {
  const store = new RunsStore(query);
  store.start();
  const feed = feeds[0] as FollowerOptions;
  const tell = (run_id: string, event: RunEvent) => feed.take(told({ ...event, run_id }));
  const relist = async () => {
    feed.take(told({ type: "stream.caught_up", last_seq: null, cursor: null } as never));
    await settled();
  };
  const answer = async (answered: RunPage) => {
    answers.shift()?.(answered);
    await settled();
  };
  await relist();
  return { store, tell, relist, answer };
}
const ids = (store: RunsStore) => store.runs.map(({ run_id }) => run_id).join("");

test("runs of one time stay where a page ends between them", async () => {
  const { store: list, relist, answer } = await store();
  await answer(page([run("d", { created_at: atAfter(9) }), run("c")], "more"));
  void list.more();
  await answer(page([run("b"), run("a")]));
  expect(ids(list)).toBe("dcba");
  await relist();
  await answer(page([run("d", { created_at: atAfter(9) }), run("c")], "more"));
  expect(ids(list)).toBe("dcba");
});

test("a run on a later page leaves a list of one status when its status changes", async () => {
  const { store: list, tell, answer } = await store({ status: "running" });
  await answer(page([run("d"), run("c")], "more"));
  void list.more();
  await answer(page([run("b"), run("a")]));
  tell("b", event(2, "run.completed"));
  await vi.advanceTimersByTimeAsync(5_000);
  await answer(page([run("d"), run("c")], "more"));
  expect(ids(list)).toBe("dca");
});

test("of runs that a list may bring so many characters are kept, and what was too much is in the next list", async () => {
  const { store: list, tell, answer } = await store();
  const payload = { text: "x".repeat(60_000) };
  for (let seq = 2; seq < 100; seq += 1) tell("a", event(seq, "log.info", { payload }));
  await answer(page([run("a")]));
  expect(list.runs[0]?.last_seq).toBeLessThan(80);
  await vi.advanceTimersByTimeAsync(5_000);
  await answer(page([run("a", { last_seq: 99 })]));
  expect(list.runs[0]?.last_seq).toBe(99);
});
