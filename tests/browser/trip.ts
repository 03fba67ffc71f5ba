import type { NewEvent, Producer } from "./producer.ts";

/** How long the run took, as its events tell it. */
const run_ms = 12_600;

const answer =
  "Fly on Saturday morning for 128 €. Both days are clear, 24 °C: walk, and book nothing indoors.";
const tool = (id: string, name: string, args: unknown): NewEvent => ({
  type: "tool.started",
  span_id: id,
  parent_span_id: "plan",
  payload: { tool_call_id: id, name, args },
});
const step = (verb: "started" | "completed", name: string): NewEvent => ({
  type: `step.${verb}`,
  span_id: name,
  payload: { name },
});
const ended = (id: string, name: string, outcome: Record<string, unknown>): NewEvent => ({
  type: "error" in outcome ? "tool.failed" : "tool.completed",
  span_id: id,
  payload: { name, ...outcome },
});

/** What happens, and how many milliseconds after the start. */
const story: [number, NewEvent][] = [
  [0, { type: "run.started" }],
  [40, step("started", "plan")],
  [60, { type: "log.info", payload: { message: "two days, one person" } }],
  [400, tool("c1", "search_flights", { from: "BER", to: "LIS" })],
  [450, tool("c2", "weather", { city: "Lisbon", days: 2 })],
  [1_300, ended("c2", "weather", { result: { sky: "clear", celsius: 24 } })],
  [3_900, ended("c1", "search_flights", { error: { message: "the airline's service answered 503" } })],
  [4_200, tool("c3", "search_flights", { from: "BER", to: "LIS", retry: 1 })],
  [6_800, ended("c3", "search_flights", { result: [{ price: 128 }, { price: 143 }] })],
  [7_000, step("completed", "plan")],
  [7_050, step("started", "write")],
  [
    9_100,
    {
      type: "reasoning.completed",
      span_id: "r1",
      parent_span_id: "write",
      payload: {
        text: "The cheaper flight leaves early; the sky is clear on both days.",
        duration_ms: 2_000,
      },
    },
  ],
];

const ending: [number, NewEvent][] = [
  [
    12_400,
    {
      type: "message.completed",
      span_id: "m1",
      parent_span_id: "write",
      payload: {
        role: "assistant",
        content: [{ type: "text", text: answer }],
        duration_ms: 3_200,
        usage: { input_tokens: 812, output_tokens: 41 },
      },
    },
  ],
  [12_450, step("completed", "write")],
  [run_ms, { type: "run.completed" }],
];

/** A run with something of everything. Its events carry their own times, so nobody has to wait for them. */
export async function tripRun(producer: Producer, isFinished: boolean): Promise<string> {
  const run_id = await producer.createRun({
    title: "Plan a weekend in Lisbon",
    agent: "planner",
    start: false,
  });
  const start_ms = Date.now() - run_ms;
  const timed = ([ms, event]: [number, NewEvent]) => ({
    ...event,
    at: new Date(start_ms + ms).toISOString(),
  });
  await producer.emit(run_id, ...story.map(timed));
  if (isFinished) await producer.emit(run_id, ...ending.map(timed));
  else await producer.emit(run_id, producer.token("m1", answer.slice(0, 40)));
  return run_id;
}
