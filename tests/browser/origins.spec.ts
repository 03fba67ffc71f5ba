import { readFileSync } from "node:fs";
import type { Page } from "@playwright/test";
import { expect, post, test as base } from "./listed.ts";

const test = base.extend<{ run: { id: string; token: string } }>({
  /** A run, and a token that reads it alone. */
  run: async ({ server }, use) => {
    const id = (await post<{ run_id: string }>(server, "/api/runs", { title: "Shared" })).run_id;
    const { token } = await post<{ token: string }>(server, `/api/runs/${id}/tokens`, {});
    await use({ id, token });
  },
});

/** Follows a stream as any page does, and keeps what it heard. */
async function follow(page: Page, url: string): Promise<void> {
  await page.evaluate((url) => {
    const heard: string[] = [];
    Object.assign(globalThis, { heard });
    const source = new EventSource(url);
    for (const type of ["run.created", "run.started", "custom.word", "stream.caught_up"])
      source.addEventListener(type, (event) => heard.push(`${event.type} ${event.lastEventId}`));
    source.addEventListener("error", () => heard.push(`error ${source.readyState}`));
  }, url);
}

const heard = (page: Page) => page.evaluate(() => (globalThis as unknown as { heard: string[] }).heard);

test("a page of a listed origin follows a run with EventSource and a read token", async ({
  page,
  listed,
  server,
  run,
}) => {
  await page.goto(listed);
  await follow(page, `${server.url}/api/stream/runs/${run.id}?access_token=${run.token}`);
  await expect.poll(() => heard(page)).toEqual(["run.created 1", "run.started 2", "stream.caught_up 2"]);
  await post(server, `/api/runs/${run.id}/events`, { type: "custom.word" });
  await expect.poll(() => heard(page)).toContain("custom.word 3");
  // With a header it may do what its visitor's token allows, and read why something was refused.
  const asked = await page.evaluate(
    async ({ url, token }) => {
      const read = await fetch(url, { headers: { authorization: `Bearer ${token}` } });
      const refused = await fetch(`${url}/cancel`, { method: "POST", headers: { authorization: `Bearer ${token}` } });
      return [read.status, ((await read.json()) as { title: string }).title, refused.status];
    },
    { url: `${server.url}/api/runs/${run.id}`, token: run.token },
  );
  expect(asked).toEqual([200, "Shared", 403]);
});

/** Clients of OpenAI add headers that say what they are, and take the name of their program. */
test("a page of a listed origin may send the headers that clients add", async ({
  page,
  listed,
  server,
  run,
}) => {
  await page.goto(listed);
  const asked = await page.evaluate(
    async ({ url, token }) => {
      const headers = {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        "x-stainless-os": "Unknown",
        "x-stainless-retry-count": "0",
        "openai-organization": "none",
        "user-agent": "client/1",
      };
      const answer = await fetch(`${url}/v1/responses`, { method: "POST", headers, body: "{}" });
      return answer.status;
    },
    { url: server.url, token: run.token },
  );
  // It was sent, and refused: the token only reads.
  expect([400, 403]).toContain(asked);
});

test("the script of the documents shows the tokens of a run in a page of a listed origin", async ({
  page,
  listed,
  server,
  run,
}) => {
  const text = readFileSync(new URL("../../docs/tasks/own-page.md", import.meta.url), "utf8");
  const script = /```js\n([^]*?)```/.exec(text)?.[1] ?? "";
  expect(script).toContain("EventSource");
  await page.goto(listed);
  await page.evaluate(
    ([script, server, run, token]) => {
      const heard: string[] = [];
      Object.assign(globalThis, { heard });
      const show = (text: string) => heard.push(text);
      const source: unknown = new Function("server", "run", "token", "show", `${script}; return source`)(
        ...[server, run, token, show],
      );
      Object.assign(globalThis, { source });
    },
    [script, server.url, run.id, run.token] as const,
  );
  const readyState = () => page.evaluate(() => (globalThis as unknown as { source: EventSource }).source.readyState);
  await expect.poll(readyState).toBe(1);
  const delta = (text: string) => ({ type: "message.delta", span_id: "m", payload: { text } });
  await post(server, `/api/runs/${run.id}/events`, [delta("Hello, "), delta("world")]);
  await expect.poll(() => heard(page)).toEqual(["Hello, ", "world"]);
  await post(server, `/api/runs/${run.id}/events`, { type: "run.completed" });
  await expect.poll(readyState).toBe(2);
});

test("a page of an origin that is not listed learns nothing", async ({ page, other, server, run }) => {
  await page.goto(other);
  await follow(page, `${server.url}/api/stream/runs/${run.id}?access_token=${run.token}`);
  await expect.poll(() => heard(page)).toEqual(["error 2"]);
  const read = await page.evaluate(
    ({ url, token }) =>
      fetch(url, { headers: { authorization: `Bearer ${token}` } }).then(
        (response) => response.status,
        (error: unknown) => String(error),
      ),
    { url: `${server.url}/api/runs/${run.id}`, token: run.token },
  );
  expect(read).toContain("TypeError");
});
