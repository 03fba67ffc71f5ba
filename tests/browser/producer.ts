/** A producer: what an agent's program does over HTTP. */
export interface NewEvent {
  type: string;
  payload?: unknown;
  span_id?: string;
  parent_span_id?: string;
  event_id?: string;
}

export interface Acknowledged {
  first_seq: number;
  last_seq: number;
  events: { seq: number | null }[];
}

export class Producer {
  constructor(readonly url: () => string) {}

  async createRun(run: Record<string, unknown>): Promise<string> {
    const created = await this.#post<{ run_id: string }>("/api/runs", run);
    return created.run_id;
  }

  emit(run_id: string, ...events: NewEvent[]): Promise<Acknowledged> {
    return this.#post(`/api/runs/${run_id}/events`, events);
  }

  async lastSeq(run_id: string): Promise<number> {
    const response = await fetch(`${this.url()}/api/runs/${run_id}`);
    return ((await response.json()) as { last_seq: number }).last_seq;
  }

  token(span_id: string, text: string): NewEvent {
    return { type: "message.delta", span_id, payload: { text } };
  }

  async #post<T>(path: string, body: unknown): Promise<T> {
    const response = await fetch(this.url() + path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as T;
  }
}

/** A run with something of everything, as a screenshot wants it. `to` leaves it going when it is not the end. */
export async function tripRun(producer: Producer, isFinished: boolean): Promise<string> {
  const run_id = await producer.createRun({ title: "Plan a weekend in Lisbon", agent: "planner" });
  const step = (id: string, name: string) => ({ type: "step.started", span_id: id, payload: { name } });
  const tool = (id: string, parent: string, name: string, args: unknown) => ({
    type: "tool.started",
    span_id: id,
    parent_span_id: parent,
    payload: { tool_call_id: id, name, args },
  });
  const done = (type: string, id: string, payload: unknown) => ({ type: `${type}.completed`, span_id: id, payload });
  await producer.emit(run_id, step("plan", "plan"), { type: "log.info", payload: { message: "two days, one person" } });
  await producer.emit(run_id, tool("c1", "plan", "search_flights", { from: "BER", to: "LIS" }));
  await producer.emit(run_id, tool("c2", "plan", "weather", { city: "Lisbon" }));
  await producer.emit(run_id, done("tool", "c2", { name: "weather", result: { sky: "clear", celsius: 24 } }));
  await producer.emit(run_id, {
    type: "tool.failed",
    span_id: "c1",
    payload: { name: "search_flights", error: { message: "the airline's service answered 503" } },
  });
  await producer.emit(run_id, tool("c3", "plan", "search_flights", { from: "BER", to: "LIS", retry: 1 }));
  await producer.emit(run_id, done("tool", "c3", { name: "search_flights", result: [{ price: 128 }, { price: 143 }] }));
  await producer.emit(run_id, done("step", "plan", { name: "plan" }), step("write", "write"));
  await producer.emit(run_id, {
    type: "reasoning.completed",
    span_id: "r1",
    parent_span_id: "write",
    payload: { text: "The cheaper flight leaves early; the weather is good on both days." },
  });
  const answer = "Fly on Saturday morning for 128 €. Both days are clear, 24 °C.";
  if (!isFinished) {
    await producer.emit(run_id, producer.token("m1", answer.slice(0, 40)));
    return run_id;
  }
  const content = [{ type: "text", text: answer }];
  const usage = { input_tokens: 812, output_tokens: 41 };
  const message = { ...done("message", "m1", { role: "assistant", content, usage }), parent_span_id: "write" };
  await producer.emit(run_id, message, done("step", "write", { name: "write" }), { type: "run.completed" });
  return run_id;
}
