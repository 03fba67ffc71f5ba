/** The README's example as it stands there. */

import "./dom.js";
import { rm, writeFile } from "node:fs/promises";
import { Client } from "@runreel/client";
import { act, cleanup, render, waitFor } from "@testing-library/react";
import type { ComponentType } from "react";
import { afterAll, expect, inject, test, vi } from "vitest";
import { examples } from "../../../testing/readme.ts";

const file = new URL("./.example.tsx", import.meta.url);
afterAll(() => rm(file, { force: true }));

test("the example of the README follows a run, answers what it asks, and shows its end", async () => {
  const [example] = await examples(new URL("../README.md", import.meta.url));
  await writeFile(file, example as string);
  const url = inject("url");
  vi.stubEnv("RUNREEL_URL", url);
  const { App } = (await import(file.pathname)) as { App: ComponentType<{ run_id: string }> };
  const { runs } = new Client({ url });
  const { run_id } = await runs.create({ title: "Trip" });
  const { container } = render(<App run_id={run_id} />);
  await waitFor(() => expect(container.querySelector("h1")?.textContent).toBe("Trip: running"));
  await runs.emit(run_id, [
    { type: "tool.started", span_id: "t", payload: { name: "search" } },
    { type: "message.delta", span_id: "m", payload: { text: "Found " } },
    { type: "interrupt.requested", span_id: "i", payload: { prompt: "Book it?" } },
    { type: "run.interrupted" },
  ]);
  await waitFor(() => expect(container.querySelector("button")?.textContent).toBe("Book it?"));
  expect(container.querySelector("pre")?.textContent).toBe("search: running");
  await waitFor(() => expect(container.querySelector("p")?.textContent).toBe("Found "));
  act(() => container.querySelector("button")?.click());
  await waitFor(() => expect(container.querySelector("h1")?.textContent).toBe("Trip: running"));
  await runs.emit(run_id, [
    { type: "tool.completed", span_id: "t" },
    { type: "message.completed", span_id: "m", payload: { text: "Found and booked." } },
    { type: "run.completed" },
  ]);
  await waitFor(() => expect(container.querySelector("h1")?.textContent).toBe("Trip: completed"));
  expect(container.querySelector("p")?.textContent).toBe("Found and booked.");
  expect(container.querySelector("pre")?.textContent).toBe("search: completed");
  expect(container.querySelector("button")).toBeNull();
  cleanup();
});
