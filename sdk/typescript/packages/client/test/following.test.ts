/** Streams, credentials and answers against the real server. */

import { readFile } from "node:fs/promises";
import { Client, isEvent, type Payloads, type StreamEvent } from "@runreel/client";
import { Interrupts } from "@runreel/client/fold";
import { afterAll, afterEach, beforeAll, describe, expect, inject, test, vi } from "vitest";
import { Server } from "../../../../../tests/browser/server.ts";
import { secret, signed } from "../../../../../tests/browser/signed.ts";
import { Wire } from "../../../../../tests/browser/wire.ts";
import { collect, durable, streamsOpen, until } from "../../../testing/log.ts";
import { Proxy } from "../../../testing/proxy.ts";

const url = inject("url");
const client = new Client({ url });
const end = { type: "run.completed" };

afterEach(() => {
  vi.restoreAllMocks();
});

describe("what a stream shows", () => {
  test("a tree with the descendants that come later, until the last of them has ended", async () => {
    const root = await client.runs.create({ title: "root" });
    const stream = client.stream(root.run_id, { tree: true });
    const read = collect(stream);
    await until("it is live", () => stream.status.getSnapshot().state === "live");
    const child = await client.runs.create({ title: "child", parent_run_id: root.run_id });
    await client.runs.emit(root.run_id, [end]);
    await client.runs.emit(child.run_id, [end]);
    const events = await read;
    expect(new Set(durable(events).map(({ run_id }) => run_id))).toEqual(
      new Set([root.run_id, child.run_id]),
    );
    expect(events.at(-1)).toMatchObject({ type: "stream.end", status: "completed" });
    expect(stream.lastEventId).toMatch(/^p/);
  });

  test("a thread with the runs that come later, until its reader leaves", async () => {
    const thread_id = `t-${Date.now()}`;
    const seen: string[] = [];
    const created: Promise<unknown>[] = [];
    const stream = client.streamThread(thread_id);
    stream.status.subscribe(() => {
      const isLive = stream.status.getSnapshot().state === "live";
      if (isLive) created.push(client.runs.create({ thread_id, title: "later" }));
    });
    for await (const event of stream) {
      if (isEvent(event)) seen.push(event.type);
      if (event.type === "run.started") break;
    }
    expect(seen).toEqual(["run.created", "run.started"]);
    await Promise.all(created);
    expect((await client.threads.runs(thread_id)).runs).toHaveLength(1);
  });

  test("everything the credential may read, from the end of a list on", async () => {
    const { stream_cursor } = await client.runs.list({ limit: 1 });
    const { run_id } = await client.runs.create({ title: "one of all", role: "worker" });
    for await (const event of client.streamAll({ after: stream_cursor, role: "worker" })) {
      if (!isEvent(event)) continue;
      expect(event).toMatchObject({ run_id, type: "run.created", role: "worker" });
      break;
    }
  });

  test("what was deleted before it was read is told, and stays in the status", async () => {
    const { stream_cursor } = await client.runs.list({ limit: 1 });
    const { run_id } = await client.runs.create({ title: "to be deleted" });
    await client.runs.emit(run_id, [end]);
    await client.runs.delete(run_id);
    const stream = client.streamAll({ after: stream_cursor });
    const types: string[] = [];
    for await (const event of stream) {
      if (event.type.startsWith("stream.")) types.push(event.type);
      if (event.type === "stream.caught_up") break;
    }
    expect(types).toEqual(["stream.gap", "stream.caught_up"]);
    expect(stream.status.getSnapshot()).toMatchObject({
      state: "closed",
      gap: { type: "stream.gap", requested_after: stream_cursor },
    });
  });

  test("some types, without tokens, and what came while a tail had nothing to show", async () => {
    vi.spyOn(Math, "random").mockReturnValue(0);
    const wire = await Wire.to(() => Number(new URL(url).port));
    const { run_id } = await client.runs.create();
    const options = { types: ["log.*", "run.completed"], tokens: false, tail: 0 };
    const stream = new Client({ url: wire.url }).stream(run_id, options);
    const read = collect(stream);
    await until("it is live", () => stream.status.getSnapshot().state === "live");
    wire.cut();
    await client.runs.emit(run_id, [
      { type: "log.info", payload: { message: "while it was away" } },
      { type: "tool.started", span_id: "t" },
      { type: "message.delta", span_id: "m", payload: { text: "…" } },
      end,
    ]);
    wire.heal();
    expect(durable(await read).map(({ seq, type }) => [seq, type])).toEqual([
      [3, "log.info"],
      [5, "run.completed"],
    ]);
    await wire.close();
  });

  test.each([503, 429])(
    "after %i nobody asks before Retry-After, and the reason is in the status",
    async (status) => {
      vi.spyOn(Math, "random").mockReturnValue(0);
      const asked: number[] = [];
      const proxy = await Proxy.to(url, (_, count) => {
        asked.push(performance.now());
        const headers = { "retry-after": "1", "content-type": "application/problem+json" };
        const problem = JSON.stringify({ code: "busy", title: "Busy", detail: "later" });
        return count === 1 ? { answer: (to) => to.writeHead(status, headers).end(problem) } : {};
      });
      const { run_id } = await client.runs.create();
      await client.runs.emit(run_id, [end]);
      const stream = new Client({ url: proxy.url }).stream(run_id);
      const reasons: unknown[] = [];
      stream.status.subscribe(() => {
        const now = stream.status.getSnapshot();
        if (now.state === "reconnecting") reasons.push(now.error);
      });
      await collect(stream);
      expect((asked[1] as number) - (asked[0] as number)).toBeGreaterThanOrEqual(990);
      expect(reasons).toMatchObject([{ code: "busy", status }]);
      await proxy.close();
    },
  );

  test("an interrupt is open until somebody answers it, and a second answer is refused", async () => {
    const { run_id } = await client.runs.create();
    const interrupts = new Interrupts();
    const stream = client.stream(run_id);
    const read = (async () => {
      for await (const event of stream) {
        if (!isEvent(event)) continue;
        interrupts.take(event);
        if (event.type === "run.interrupted") {
          expect([...interrupts.open.values()]).toMatchObject([
            { interrupt_id: "i1", kind: "approval", prompt: "Ship it?", run_id },
          ]);
          await client.runs.answer(run_id, { interrupt_id: "i1", decision: "approve", value: { by: "me" } });
        }
        if (event.type === "run.resumed") await client.runs.emit(run_id, [end]);
      }
    })();
    await client.runs.emit(run_id, [
      { type: "interrupt.requested", span_id: "i1", payload: { kind: "approval", prompt: "Ship it?" } },
      { type: "run.interrupted", payload: { interrupt_id: "i1" } },
    ]);
    await read;
    expect([...interrupts.closed]).toEqual([["i1", "approve"]]);
    const late = client.runs.answer(run_id, { interrupt_id: "i1", decision: "reject" });
    await expect(late).rejects.toMatchObject({ code: "interrupt_closed", status: 409 });
  });
});

describe("a server of its own, which wants credentials", () => {
  let server: Server;

  beforeAll(async () => {
    server = await Server.start(undefined, { flags: ["--auth", "jwt"], env: { RUNREEL_JWT_SECRET: secret } });
  });
  afterAll(async () => {
    await server.stop();
    await server.remove();
  });

  const owner = () => new Client({ url: server.url, token: signed("alice") });
  const newToken = () =>
    owner().request<{ token: string; token_id: string }>("/api/tokens", {
      method: "POST",
      body: { name: "page", scopes: ["read"] },
    });

  test("a 401 in the middle of a stream gets a new credential from its source, and nothing is missed", async () => {
    const first = await newToken();
    const { run_id } = await owner().runs.create();
    const refused: (string | null)[] = [];
    const reader = new Client({
      url: server.url,
      token: async (old) => {
        refused.push(old);
        return old === null ? first.token : (await newToken()).token;
      },
    });
    const stream = reader.stream(run_id);
    const read = collect(stream);
    await until("it is live", () => stream.status.getSnapshot().state === "live");
    await owner()
      .request(`/api/tokens/${first.token_id}`, { method: "DELETE" })
      .catch(() => undefined);
    await until("another credential was asked for", () => refused.length === 2);
    await owner().runs.emit(run_id, [end]);
    expect(durable(await read).map(({ seq }) => seq)).toEqual([1, 2, 3]);
    expect(refused).toEqual([null, first.token]);
  });

  test("an aborted signal throws its reason to the reader, and the server's stream is closed", async () => {
    const { run_id } = await owner().runs.create();
    const before = await streamsOpen(server.url);
    const abort = new AbortController();
    const stream = owner().stream(run_id, { signal: abort.signal });
    const read = collect(stream);
    await until("it is live", () => stream.status.getSnapshot().state === "live");
    expect(await streamsOpen(server.url)).toBe(before + 1);
    abort.abort(new Error("enough"));
    await expect(read).rejects.toThrow("enough");
    expect(stream.status.getSnapshot().state).toBe("closed");
    await until("the server has closed it", async () => (await streamsOpen(server.url)) === before);
  });

  test("a source that has nothing better fails the stream, and so does a plain token", async () => {
    const { run_id } = await owner().runs.create();
    for (const token of ["rr_wrong", () => "rr_wrong", () => null]) {
      const read = collect(new Client({ url: server.url, token }).stream(run_id));
      await expect(read).rejects.toMatchObject({ code: "unauthorized", status: 401 });
    }
  });

  test("many requests that are refused at once ask for one new credential", async () => {
    let asked = 0;
    const reader = new Client({
      url: server.url,
      token: async (old) => {
        asked += 1;
        return old === null ? "rr_old" : signed("alice");
      },
    });
    await Promise.all(Array.from({ length: 8 }, () => reader.runs.list()));
    expect(asked).toBe(2);
  });

  test("a read token follows its run and may do nothing else", async () => {
    const { run_id } = await owner().runs.create();
    await owner().runs.emit(run_id, [end]);
    const { token } = await owner().runs.createReadToken(run_id, { ttl_s: 60 });
    const page = new Client({ url: server.url, token });
    const events: StreamEvent[] = await collect(page.stream(run_id));
    expect(events.at(-1)?.type).toBe("stream.end");
    await expect(page.runs.cancel(run_id)).rejects.toMatchObject({ code: "forbidden", status: 403 });
    await expect(page.runs.list()).rejects.toMatchObject({ code: "forbidden" });
  });
});

test("every type of the contract's closed families has its payload's type, and no other has", async () => {
  const types: Record<keyof Payloads, true> = {
    "run.created": true,
    "run.started": true,
    "run.waiting": true,
    "run.interrupted": true,
    "run.resumed": true,
    "run.completed": true,
    "run.failed": true,
    "run.cancelled": true,
    "step.started": true,
    "step.completed": true,
    "step.failed": true,
    "tool.started": true,
    "tool.completed": true,
    "tool.failed": true,
    "worker.spawned": true,
    "worker.completed": true,
    "worker.failed": true,
    "message.completed": true,
    "reasoning.completed": true,
    "artifact.created": true,
    "state.checkpointed": true,
    "state.compacted": true,
    "interrupt.requested": true,
    "interrupt.resolved": true,
    "log.debug": true,
    "log.info": true,
    "log.warn": true,
    "log.error": true,
  };
  const contract = await readFile(new URL("../../../../../docs/protocol.md", import.meta.url), "utf8");
  const table = contract.split("| family | types |")[1]?.split("\n\n")[0] ?? "";
  const rows = [...table.matchAll(/^\| `(\w+)` \| ([^(|]*)/gm)].filter(([, family]) => family !== "stream");
  const told = rows.flatMap(([, family, verbs = ""]) =>
    verbs.match(/[a-z]+/g)?.map((verb) => `${family}.${verb}`),
  );
  expect(Object.keys(types).sort()).toEqual(told.sort());
});
