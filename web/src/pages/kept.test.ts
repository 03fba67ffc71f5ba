import { expect, test } from "vitest";
import { endingOf, kindOf, matches } from "./artifactkinds";
import { dutiesOf, isStuck } from "./executors";

const artifact = (name: string, media_type: string) => ({
  artifact_id: "a",
  name,
  media_type,
  size: 1,
  sha256: "",
  url: "",
  seq: 1,
  created_at: "",
  run_id: "r",
  run_title: "Nightly report",
  agent: "reporter",
});

test("artifacts are told apart by what can be shown of them", () => {
  expect(kindOf(artifact("a.png", "image/png"))).toBe("image");
  expect(kindOf(artifact("a.svg", "image/svg+xml"))).toBe("text");
  expect(kindOf(artifact("a.md", "text/markdown"))).toBe("text");
  expect(kindOf(artifact("a.csv", "text/csv"))).toBe("table");
  expect(kindOf(artifact("a.zip", "application/zip"))).toBe("other");
  expect([endingOf("a.tar.gz"), endingOf(".env"), endingOf("README")]).toEqual(["gz", "file", "file"]);
});

test("an artifact is found by its name, its run and its agent", () => {
  const report = artifact("report.md", "text/markdown");
  expect(matches(report, "", "")).toBe(true);
  expect(matches(report, "text", "night REPORT")).toBe(true);
  expect(matches(report, "image", "")).toBe(false);
  expect(matches(report, "", "weekly")).toBe(false);
});

test("an agent is listed once, whoever executes it; one whose runs nobody takes is stuck", () => {
  const duties = dutiesOf({
    agents: [{ name: "echo", kind: "assistant", model: "echo", tools: [], workers: [] }],
    runners: [{ name: "r1", agents: ["coder", "echo"], capacity: 1, connected_at: "" }],
    queues: [
      { agent: "coder", status: "running", runs: 1 },
      { agent: "nobody", status: "queued", runs: 3 },
    ],
    is_partial: false,
    held: [],
  });
  expect(duties.map(({ name }) => name)).toEqual(["coder", "echo", "nobody"]);
  expect(duties.map(({ runners }) => runners)).toEqual([["r1"], ["r1"], []]);
  expect(duties.map(isStuck)).toEqual([false, false, true]);
  expect(duties[0]?.jobs).toEqual({ running: 1 });
});
