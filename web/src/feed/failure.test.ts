import { readFailure, type Failure } from "@runreel/client/fold";
import { expect, test } from "vitest";
import { errorLine, failureText, framesOf } from "./failure";

test("an error is told as its type and its message, whatever there is of them", () => {
  expect(errorLine({ type: "KeyError", message: "'customer_id'" })).toBe("KeyError: 'customer_id'");
  expect(errorLine({ type: "AssertionError", message: "" })).toBe("AssertionError");
  expect(errorLine("timed out")).toBe("timed out");
  expect(errorLine(null)).toBe("");
});

test("what is copied has the stack and every cause", () => {
  const error = {
    type: "ReportError",
    message: "no report",
    stack: '  File "/app/report.py", line 12, in build',
    cause: { type: "KeyError", message: "'id'" },
  };
  expect(failureText(readFailure(error) as Failure)).toBe(
    "ReportError: no report\n  File \"/app/report.py\", line 12, in build\n\nCaused by KeyError: 'id'",
  );
});

test("frames of libraries are told apart from the program's own, with the lines of source that belong to them", () => {
  const python = [
    '  File "/app/report.py", line 12, in build',
    '    return row["id"]',
    '  File "/venv/lib/python3.12/site-packages/httpx/_client.py", line 9, in send',
    "    raise exc",
    '  File "<frozen runpy>", line 88, in _run_code',
  ].join("\n");
  expect(framesOf(python).map(({ isOwn, frames, lines }) => [isOwn, frames, lines.length])).toEqual([
    [true, 1, 2],
    [false, 2, 3],
  ]);
  const script = [
    "    at build (file:///app/report.ts:4:11)",
    "    at process.processTicksAndRejections (node:internal/process/task_queues:105:5)",
    "    at async run (/app/node_modules/ai/dist/index.js:1:2)",
  ].join("\n");
  expect(framesOf(script).map(({ isOwn, frames }) => [isOwn, frames])).toEqual([
    [true, 1],
    [false, 2],
  ]);
  // Without frames of the program, the others count as its own.
  expect(framesOf("    at node:internal/x:1:1")).toHaveLength(1);
  expect(framesOf("    at node:internal/x:1:1")[0]?.isOwn).toBe(true);
});
