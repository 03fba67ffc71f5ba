import { violations } from "./axe.ts";
import { expect, test } from "./fixtures.ts";
import { expectState } from "./page.ts";

const base64 = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64");

test("the state of a run is what its events tell and what its checkpoints hold, and it follows", async ({
  page,
  server,
  producer,
}) => {
  const thread_id = "state-thread";
  const run_id = await producer.createRun({ title: "Stateful", thread_id });
  const put = (id: string, step: number, messages: unknown) =>
    fetch(`${server.url}/api/threads/${thread_id}/checkpoints/${id}`, {
      method: "PUT",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        run_id,
        checkpoint: { t: "json", b: base64({ v: 1 }) },
        metadata: { source: "loop", step },
        versions: { messages: step },
        blobs: { messages: { version: step, t: "json", b: base64(messages) } },
      }),
    });
  await fetch(`${server.url}/api/threads/${thread_id}`, {
    method: "PUT",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  expect((await put("1f0c", 1, ["first words"])).status).toBe(201);
  await producer.emit(
    run_id,
    { type: "agui.state_snapshot", payload: { snapshot: { city: "Lisbon", days: 2 } } },
    { type: "agui.state_delta", payload: { delta: [{ op: "replace", path: "/days", value: 3 }] } },
  );
  await page.goto(`${server.url}/runs/${run_id}`);
  await expectState(page, "live");
  await page.getByRole("tab", { name: "State" }).click();
  const told = page.getByRole("region", { name: "In its events" });
  await expect(told).toContainText("city Lisbon");
  await expect(told).toContainText("days 3");
  const checkpoints = page.getByRole("region", { name: "Checkpoints" });
  await expect(checkpoints).toContainText("step 1 · loop");
  await expect(checkpoints).toContainText("first words");
  expect(await violations(page)).toEqual([]);

  await put("1f0d", 2, ["second words"]);
  await producer.emit(
    run_id,
    { type: "agui.state_delta", payload: { delta: [{ op: "add", path: "/rain", value: false }] } },
    { type: "state.checkpointed", span_id: "1f0d" },
  );
  await expect(told).toContainText("rain false");
  await expect(checkpoints).toContainText("second words");
  // A change that does not fit is told, and what was before it is shown.
  const { last_seq } = await producer.emit(run_id, {
    type: "agui.state_delta",
    payload: { delta: [{ op: "remove", path: "/nowhere" }] },
  });
  await expect(told).toContainText(`The change in event #${last_seq} does not fit`);
  await expect(told).toContainText("rain false");
});
