/** OpenAI's own client for JavaScript against `/v1/responses`: streams that are cut, and what follows a number. */

import { Client, type NewEvent } from "@runreel/client";
import OpenAI from "openai";
import type { ResponseStreamEvent } from "openai/resources/responses/responses";
import { expect, inject, test } from "vitest";
import { collect } from "../testing/log.ts";
import { Proxy } from "../testing/proxy.ts";

const producer = new Client({ url: inject("url") });
const clientOf = (url = inject("url")) => new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });

const emit = (id: string, ...events: NewEvent[]) => producer.runs.emit(id.replace(/^resp_/, ""), events);
const token = (text: string): NewEvent => ({ type: "message.delta", span_id: "m", payload: { text } });
const whole = (text: string): NewEvent => ({
  type: "message.completed",
  span_id: "m",
  payload: { role: "assistant", content: [{ type: "text", text }] },
});
const called: NewEvent[] = [
  { type: "tool.started", span_id: "c", payload: { name: "weather", args: { city: "Rome" } } },
  { type: "tool.completed", span_id: "c", payload: { name: "weather", result: "sun" } },
];
const ended: NewEvent = { type: "run.completed", payload: { output: "sunny" } };
const written = ["It ", "is ", "sunny 😀 ", "in ", "Rome."];
const text = written.join("");

const isPiece = ({ type }: ResponseStreamEvent) => type === "response.output_text.delta";
const textOf = (events: ResponseStreamEvent[]) =>
  events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join("");
/** What is said besides pieces of the text, of which there are fewer when it is complete. */
const othersOf = (events: ResponseStreamEvent[]) =>
  events.filter((event) => !isPiece(event)).map(({ type }) => type);

async function following(id: string, starting_after: number): Promise<ResponseStreamEvent[]> {
  return collect(await clientOf().responses.retrieve(id, { stream: true, starting_after }));
}

test("a created stream that breaks off in a text goes on after its last number, nothing twice", async () => {
  // The connection breaks instead of passing on the third token.
  const proxy = await Proxy.to(inject("url"), () => ({
    chunk: (data, to) => void (data.includes("sunny") ? to.destroy() : to.write(data)),
  }));
  try {
    const asked = { model: "helper", input: "weather?", stream: true } as const;
    const stream = await clientOf(proxy.url).responses.create(asked);
    const seen: ResponseStreamEvent[] = [];
    const pieces = [...written];
    let id = "";
    const reading = (async () => {
      for await (const event of stream) {
        seen.push(event);
        if (event.type === "response.created") {
          ({ id } = event.response);
          await emit(id, { type: "run.started" }, ...called);
        }
        if (event.type === "response.mcp_call.completed" || isPiece(event))
          await emit(id, token(pieces.shift()!));
      }
    })();
    await expect(reading).rejects.toThrow();
    expect(textOf(seen)).toBe("It is ");
    await emit(id, ...pieces.map(token), whole(text), ended);
    const last = seen.at(-1)!.sequence_number;
    const rest = await following(id, last);
    expect(rest.every(({ sequence_number }) => sequence_number > last)).toBe(true);
    expect(textOf(rest)).toBe("sunny 😀 in Rome.");
    expect(seen[0]!.sequence_number).toBe(0);
    const all = await following(id, 0);
    expect(textOf(all)).toBe(text);
    expect(othersOf([...seen.slice(1), ...rest])).toEqual(othersOf(all));
    expect(all.every(({ sequence_number }) => sequence_number < 2 ** 31)).toBe(true);
    const response = await clientOf().responses.retrieve(id);
    expect(response.output_text).toBe(text);
    expect(rest.at(-1)).toMatchObject({ type: "response.completed", response: { output: response.output } });
  } finally {
    await proxy.close();
  }
});

test("after every number of a response that is over, exactly what follows comes", async () => {
  const ai = clientOf();
  const { id } = await ai.responses.create({ model: "helper", input: "weather?", background: true });
  await emit(id, { type: "run.started" }, ...called, whole(text), ended);
  const all = await collect(await ai.responses.retrieve(id, { stream: true }));
  expect(all).toHaveLength(15);
  for (const [at, { sequence_number }] of all.entries())
    expect(await following(id, sequence_number), `after event ${at}`).toEqual(all.slice(at + 1));
});

test("cancel ends a response and its stream; again it changes nothing, and what has ended refuses it", async () => {
  const ai = clientOf();
  const { id, status } = await ai.responses.create({ model: "helper", input: "wait", background: true });
  expect(status).toBe("queued");
  const events = await ai.responses.retrieve(id, { stream: true });
  const seen: ResponseStreamEvent[] = [];
  for await (const event of events) {
    seen.push(event);
    if (event.type === "response.created") await emit(id, { type: "run.started" }, token("It "));
    if (event.type === "response.output_text.delta")
      expect((await ai.responses.cancel(id)).status).toBe("cancelled");
  }
  expect(seen.at(-1)).toMatchObject({ type: "response.incomplete", response: { status: "cancelled" } });
  expect((await ai.responses.cancel(id)).status).toBe("cancelled");
  const done = await ai.responses.create({ model: "helper", input: "done", background: true });
  await emit(done.id, { type: "run.started" }, ended);
  await expect(ai.responses.cancel(done.id)).rejects.toBeInstanceOf(OpenAI.ConflictError);
});
