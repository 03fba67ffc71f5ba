/** The hooks in React's strict mode, against a real server behind real sockets. */

import "./dom.js";
import { Client, type RunEvent } from "@runreel/client";
import {
  RunreelProvider,
  useInterrupts,
  useMessages,
  useRun,
  type Message,
  type ToolCall,
} from "@runreel/react";
import { act, cleanup, render, waitFor } from "@testing-library/react";
import { StrictMode, type ReactElement } from "react";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { Server } from "../../../../../tests/browser/server.ts";
import { Wire } from "../../../../../tests/browser/wire.ts";
import { logOf, streamsOpen, until } from "../../../testing/log.ts";
import { Proxy } from "../../../testing/proxy.ts";

let server: Server;
let direct: Client;
const closing: { close: () => Promise<void> }[] = [];
const complaints: unknown[][] = [];

beforeAll(async () => {
  server = await Server.start();
  direct = new Client({ url: server.url });
});
afterAll(async () => {
  await server.stop();
  await server.remove();
});
afterEach(async () => {
  cleanup();
  await until("no stream is open", async () => (await streamsOpen(server.url)) === 0);
  for (const each of closing.splice(0)) await each.close();
  vi.restoreAllMocks();
  expect(complaints.splice(0)).toEqual([]);
});
vi.spyOn(console, "error").mockImplementation((...words) => void complaints.push(words));

type Item = Message | ToolCall;

const textOf = (item: Item) => (item.kind === "tool" ? `${item.name} ${item.status}` : item.text);

/** Everything that was ever on the screen. */
class Screen {
  readonly shown: (readonly Item[])[] = [];
  last_seqs: number[] = [];
}

function Messages({ run_id, screen }: { run_id: string; screen: Screen }): ReactElement {
  const messages = useMessages(run_id);
  screen.shown.push(messages);
  return (
    <ol>
      {messages.map((item) => (
        <li key={`${item.kind} ${item.id}`}>{textOf(item)}</li>
      ))}
    </ol>
  );
}

function Header({ run_id, screen }: { run_id: string; screen: Screen }): ReactElement {
  const run = useRun(run_id);
  screen.last_seqs.push(run.last_seq);
  return (
    <h1>
      {run.title} {run.status} {run.connection.state}
    </h1>
  );
}

function Questions({ run_id }: { run_id: string }): ReactElement {
  const { open, answer } = useInterrupts(run_id);
  return (
    <nav>
      {open.map(({ interrupt_id, prompt }) => (
        <button key={interrupt_id} onClick={() => void answer(interrupt_id, "approve")}>
          {prompt}
        </button>
      ))}
    </nav>
  );
}

function show(
  client: Client,
  run_id: string,
): { screen: Screen; text: () => string; rows: () => string[]; root: HTMLElement } {
  const screen = new Screen();
  const { container } = render(
    <StrictMode>
      <RunreelProvider client={client}>
        <Header run_id={run_id} screen={screen} />
        <Messages run_id={run_id} screen={screen} />
        <Messages run_id={run_id} screen={new Screen()} />
        <Questions run_id={run_id} />
      </RunreelProvider>
    </StrictMode>,
  );
  const rows = () => [...(container.querySelector("ol")?.children ?? [])].map((row) => row.textContent ?? "");
  return { screen, rows, root: container, text: () => container.querySelector("h1")?.textContent ?? "" };
}

const said = (text: string, span_id: string) => ({ type: "message.completed", span_id, payload: { text } });

test(
  "a connection that is cut 50 times shows each message once, in order, and leaves no stream behind",
  {
    timeout: 60_000,
  },
  async () => {
    vi.spyOn(Math, "random").mockReturnValue(0);
    const wire = await Wire.to(() => server.port);
    closing.push(wire);
    const { run_id } = await direct.runs.create({ title: "Cut" });
    const { screen, rows, text } = show(new Client({ url: wire.url }), run_id);
    await waitFor(() => expect(text()).toBe("Cut running live"));
    const expected: string[] = [];
    for (let cut = 0; cut < 50; cut += 1) {
      const [a, b] = [`${cut} before`, `${cut} while away`];
      await direct.runs.emit(run_id, [
        said(a, `a${cut}`),
        { type: "tool.started", span_id: `t${cut}`, payload: { name: a } },
      ]);
      wire.cut();
      await direct.runs.emit(run_id, [{ type: "tool.completed", span_id: `t${cut}` }, said(b, `b${cut}`)]);
      wire.heal();
      expected.push(a, `${a} completed`, b);
      await waitFor(() => expect(rows()).toEqual(expected));
    }
    await direct.runs.emit(run_id, [{ type: "run.completed" }]);
    await waitFor(() => expect(text()).toBe("Cut completed ended"));
    const log = await logOf(direct, run_id);
    expect(screen.last_seqs.at(-1)).toBe(log.length);
    expect(screen.last_seqs).toEqual([...screen.last_seqs].sort((one, other) => one - other));
    // At no moment was there a duplicate, a hole or another order than the log's.
    for (const items of screen.shown) {
      const spans = items.map(({ kind, id }) => `${kind} ${id}`);
      expect(spans).toEqual(spansOf(log).slice(0, spans.length));
    }
    cleanup();
    await until("no stream is open", async () => (await streamsOpen(server.url)) === 0);
  },
);

const spansOf = (log: RunEvent[]) =>
  log
    .filter(({ type }) => type === "message.completed" || type === "tool.started")
    .map(({ type, span_id }) => `${type === "tool.started" ? "tool" : "message"} ${span_id}`);

test("several components in strict mode share one stream, which is closed when the last has left", async () => {
  const { run_id } = await direct.runs.create({ title: "Shared" });
  const proxy = await Proxy.to(server.url);
  closing.push(proxy);
  const client = new Client({ url: proxy.url });
  const first = show(client, run_id);
  const second = show(client, run_id);
  await waitFor(() => expect([first.text(), second.text()]).toEqual(Array(2).fill("Shared running live")));
  expect(proxy.passed).toHaveLength(1);
  expect(await streamsOpen(server.url)).toBe(1);
});

test("hooks update behind a proxy that holds bytes back and cuts them anywhere, token by token", async () => {
  const { run_id } = await direct.runs.create({ title: "Buffered" });
  // No frame arrives in one piece, and no character of more than one byte either.
  const proxy = await Proxy.to(server.url, () => ({ bytesAtOnce: 7 }));
  closing.push(proxy);
  const { rows, text } = show(new Client({ url: proxy.url }), run_id);
  await waitFor(() => expect(text()).toBe("Buffered running live"));
  let soFar = "";
  for (const word of ["Über ", "Stock ", "und ", "Stein 😀"]) {
    soFar += word;
    await direct.runs.emit(run_id, [{ type: "message.delta", span_id: "m", payload: { text: word } }]);
    await waitFor(() => expect(rows()).toEqual([soFar]));
  }
  await direct.runs.emit(run_id, [said(soFar, "m"), { type: "run.completed", payload: { output: 1 } }]);
  await waitFor(() => expect(text()).toBe("Buffered completed ended"));
  expect(rows()).toEqual([soFar]);
});

test("an interrupt is shown while it is open, and goes when the log has its answer", async () => {
  const { run_id } = await direct.runs.create({ title: "Asking" });
  await direct.runs.emit(run_id, [
    { type: "interrupt.requested", span_id: "old", payload: { prompt: "Answered before?" } },
    { type: "run.interrupted", payload: {} },
  ]);
  await direct.runs.answer(run_id, { interrupt_id: "old", decision: "reject" });
  const { root, text } = show(new Client({ url: server.url }), run_id);
  await waitFor(() => expect(text()).toBe("Asking running live"));
  expect(root.querySelectorAll("button")).toHaveLength(0);
  await direct.runs.emit(run_id, [
    { type: "interrupt.requested", span_id: "new", payload: { prompt: "Ship it?" } },
    { type: "run.interrupted", payload: {} },
  ]);
  await waitFor(() => expect(root.querySelector("button")?.textContent).toBe("Ship it?"));
  act(() => root.querySelector("button")?.click());
  await waitFor(() => expect(text()).toBe("Asking running live"));
  await waitFor(() => expect(root.querySelectorAll("button")).toHaveLength(0));
  const answered = (await logOf(direct, run_id)).find(
    ({ type, span_id }) => type === "interrupt.resolved" && span_id === "new",
  );
  expect(answered?.payload).toMatchObject({ decision: "approve" });
});

test("without an id nothing is followed, and another id is another run", async () => {
  const { run_id } = await direct.runs.create({ title: "Found later" });
  const proxy = await Proxy.to(server.url);
  closing.push(proxy);
  const client = new Client({ url: proxy.url });
  function Title({ id }: { id: string | null }): ReactElement {
    const { title, connection } = useRun(id);
    return (
      <p>
        {title ?? "none"} {connection.state} {useMessages(id).length} {useInterrupts(id).open.length}
      </p>
    );
  }
  const app = (id: string | null) => (
    <StrictMode>
      <RunreelProvider client={client}>
        <Title id={id} />
      </RunreelProvider>
    </StrictMode>
  );
  const { container, rerender } = render(app(null));
  expect(container.textContent).toBe("none idle 0 0");
  expect(proxy.passed).toEqual([]);
  rerender(app(run_id));
  await waitFor(() => expect(container.textContent).toBe("Found later live 0 0"));
  rerender(app(null));
  expect(container.textContent).toBe("none idle 0 0");
});

test("a run that does not exist is shown as failed with the server's words, not as loading for ever", async () => {
  const states: unknown[] = [];
  function Trouble({ run_id }: { run_id: string }): ReactElement {
    const { connection } = useRun(run_id);
    states.push(connection.state);
    return <p>{connection.state === "failed" ? connection.error.code : "loading"}</p>;
  }
  const { container } = render(
    <RunreelProvider client={new Client({ url: server.url })}>
      <Trouble run_id="01a20078-18af-7545-b69e-87c0ab9f3405" />
    </RunreelProvider>,
  );
  await waitFor(() => expect(container.textContent).toBe("not_found"));
});
