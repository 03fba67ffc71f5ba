import "../../react/test/dom.js";
import { useChat } from "@ai-sdk/react";
import { RunreelChatTransport } from "@runreel/ai";
import { Client, type NewEvent } from "@runreel/client";
import { act, cleanup, render } from "@testing-library/react";
import type { UIMessage } from "ai";
import { StrictMode, type ReactElement } from "react";
import { afterEach, expect, inject, test } from "vitest";
import { eventually } from "../../../testing/eventually.ts";

const client = new Client({ url: inject("url") });
afterEach(cleanup);

const textOf = ({ parts }: UIMessage) =>
  parts.map((part) => (part.type === "text" ? part.text : "")).join("");
let send: (message: { text: string }) => Promise<void>;

function Page({ id, transport }: { id: string; transport: RunreelChatTransport }): ReactElement {
  const { messages, status, sendMessage } = useChat({ id, transport, resume: true });
  send = sendMessage;
  return (
    <ol data-status={status}>
      {messages.map((message) => (
        <li key={message.id}>{`${message.role}: ${textOf(message)}`}</li>
      ))}
    </ol>
  );
}

/** The page as React's strict mode shows it, which begins everything twice. */
function shown(id: string, transport: RunreelChatTransport) {
  const page = (
    <StrictMode>
      <Page id={id} transport={transport} />
    </StrictMode>
  );
  const { container } = render(page);
  return () => Array.from(container.querySelectorAll("li"), (item) => item.textContent);
}

test("useChat shows an answer as it is written; a page that is loaded anew goes on with it", async () => {
  const id = crypto.randomUUID();
  const refused: (string | null)[] = [];
  // The first credential is one that the server refuses.
  const token = (last: string | null) => (refused.push(last), last === null ? "stale" : "fresh");
  const guarded: typeof fetch = (input, init) => {
    const sent = new Headers(init?.headers).get("authorization");
    return sent === "Bearer stale"
      ? Promise.resolve(new Response(null, { status: 401 }))
      : fetch(input, init);
  };
  const options = { url: inject("url"), agent: "helper", token, fetch: guarded };
  const first = shown(id, new RunreelChatTransport(options));
  await act(async () => void send({ text: "Hello?" }));
  const run = await eventually(async () => {
    const [newest] = (await client.runs.list({ thread_id: id })).runs;
    expect(newest).toBeDefined();
    return newest!;
  });
  const token1 = (text: string): NewEvent => ({ type: "message.delta", span_id: "m", payload: { text } });
  await client.runs.emit(run.run_id, [{ type: "run.started" }, token1("Hi, ")]);
  await eventually(() => expect(first()).toEqual(["user: Hello?", "assistant: Hi, "]));
  cleanup();
  const second = shown(id, new RunreelChatTransport(options));
  await eventually(() => expect(second()).toEqual(["assistant: Hi, "]));
  const whole = { role: "assistant", content: [{ type: "text", text: "Hi, Ada." }] };
  await client.runs.emit(run.run_id, [
    token1("Ada."),
    { type: "message.completed", span_id: "m", payload: whole },
    { type: "run.completed", payload: { output: "Hi, Ada." } },
  ]);
  await eventually(() => expect(second()).toEqual(["assistant: Hi, Ada."]));
  expect((await client.runs.get(run.run_id)).status).toBe("completed");
  expect(refused.filter((last) => last === null)).toHaveLength(2);
});
