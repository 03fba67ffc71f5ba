/** The README's example as it stands there. */

import "../../react/test/dom.js";
import { rm, writeFile } from "node:fs/promises";
import { Client } from "@runreel/client";
import { act, cleanup, render } from "@testing-library/react";
import type { ComponentType } from "react";
import { afterAll, expect, inject, test, vi } from "vitest";
import { eventually } from "../../../testing/eventually.ts";
import { examples } from "../../../testing/readme.ts";

const file = new URL("./.example.tsx", import.meta.url);
afterAll(() => rm(file, { force: true }));

test("the example of the README asks an agent and shows what it answers", async () => {
  const [example] = await examples(new URL("../README.md", import.meta.url));
  await writeFile(file, example as string);
  const url = inject("url");
  vi.stubEnv("RUNREEL_URL", url);
  const { Chat } = (await import(file.pathname)) as { Chat: ComponentType<{ id: string }> };
  const { runs } = new Client({ url });
  const id = crypto.randomUUID();
  const { container } = render(<Chat id={id} />);
  const shown = () => Array.from(container.querySelectorAll("p"), (item) => item.textContent);
  act(() => container.querySelector("button")?.click());
  const run = await eventually(async () => {
    const [newest] = (await runs.list({ thread_id: id, agent: "parrot" })).runs;
    expect(newest).toBeDefined();
    return newest!;
  });
  await runs.emit(run.run_id, [
    { type: "run.started" },
    { type: "message.delta", span_id: "m", payload: { text: "Hello, " } },
  ]);
  await eventually(() => expect(shown()).toEqual(["user: Hello!", "assistant: Hello, "]));
  await runs.emit(run.run_id, [
    { type: "message.completed", span_id: "m", payload: { text: "Hello, hello!" } },
    { type: "run.completed" },
  ]);
  await eventually(() => expect(shown()).toEqual(["user: Hello!", "assistant: Hello, hello!"]));
  await eventually(() => expect(container.textContent).toMatch(/ready$/));
  cleanup();
});
