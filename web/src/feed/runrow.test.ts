import type { Run } from "@runreel/client";
import { expect, test } from "vitest";
import { lineOf, newer, placeOf, runAfter, tookOf } from "./runrow";
import { atAfter, event, run_id } from "./testing";

const run = { run_id, status: "running", last_seq: 4, started_at: null, ended_at: null } as unknown as Run;
const after = (type: string, payload: unknown = {}) => runAfter(run, event(5, type, { payload })) as Run;

test("a row moves with each newer event", () => {
  expect(after("run.completed")).toMatchObject({ status: "completed", last_seq: 5 });
});

test("a member that was left out is one that is null", () => {
  const { started_at: _, ended_at: __, ...bare } = run;
  expect(runAfter(bare, event(5, "log.info"))).toMatchObject({ started_at: null, ended_at: null });
});

test("what a row knows already is ignored", () => {
  expect(runAfter(run, event(4, "run.failed"))).toBeNull();
});

test("its line is the last message, then the output, or the error when it failed", () => {
  const said = after("message.completed", { content: [{ type: "text", text: "12  rows\nso far" }] });
  expect(lineOf(said)).toBe("12 rows so far");
  const done = runAfter(said, event(6, "run.completed", { payload: { output: { text: "13 rows" } } })) as Run;
  expect(lineOf(done)).toBe("13 rows");
  const silent = runAfter(said, event(6, "run.completed")) as Run;
  expect(lineOf(silent)).toBe("12 rows so far");
  const failed = runAfter(said, event(6, "run.failed", { payload: { error: { message: "429" } } })) as Run;
  expect(lineOf(failed)).toBe("429");
  expect(lineOf(runAfter(said, event(6, "run.failed", { payload: { message: "no" } })) as Run)).toBe("no");
  expect(lineOf(after("log.info"))).toBe("");
  expect(lineOf(after("message.completed", { text: "x".repeat(999) }))).toHaveLength(300);
});

test("what the feed told later stays when the list tells less", () => {
  const told = { ...run, last_seq: 3, title: "Told" } as Run;
  expect(newer(told, after("run.failed"))).toMatchObject({ status: "failed", last_seq: 5, title: "Told" });
  expect(newer({ ...told, last_seq: 9 } as Run, after("run.failed")).status).toBe("running");
});

test("what only the server adds up is as it was told last", () => {
  const one = { runs: 1 } as unknown as Run["descendants"];
  const two = { runs: 2 } as unknown as Run["descendants"];
  const usage = { total_tokens: 9 } as unknown as Run["usage"];
  const known = { ...after("log.info"), descendants: one } as Run;
  expect(newer({ ...run, usage, descendants: two } as Run, known)).toMatchObject({
    last_seq: 5,
    usage,
    descendants: two,
  });
});

test("how long it took is not known before it began, or when its end has no time", () => {
  const now_ms = Date.parse(atAfter(900));
  const began = { ...run, started_at: atAfter(100) } as Run;
  expect(tookOf(run, now_ms)).toBeNull();
  expect(tookOf(began, now_ms)).toBe(800);
  expect(tookOf({ ...began, status: "failed" } as Run, now_ms)).toBeNull();
  expect(tookOf({ ...began, status: "failed", ended_at: atAfter(350) } as Run, now_ms)).toBe(250);
});

test("a row that goes on has no place by its duration yet", () => {
  const began = { ...run, started_at: atAfter(0), created_at: atAfter(0), last_event_at: atAfter(70) } as Run;
  expect(placeOf(began, "duration")).toBeNull();
  expect(placeOf({ ...began, ended_at: atAfter(50) } as Run, "duration")).toBe(50);
  expect(placeOf(began, "events")).toBe(4);
  expect((placeOf(began, "updated") ?? 0) - (placeOf(began, "created") ?? 0)).toBe(70);
});
