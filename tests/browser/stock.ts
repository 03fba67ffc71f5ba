import type { Producer } from "./producer.ts";
import { tripRun } from "./trip.ts";

const hour_ms = 3_600_000;
const titles = ["Plan a weekend in Lisbon", "Summarise the week's tickets", "Import the catalogue", "Delete old branches"];
const agents = ["planner", "reporter", "importer", "janitor"];
const models = ["gpt-4o", "gpt-4o-mini", "claude-sonnet-4-20250514"];

/** Runs of the last hours, each with a call of a model and of a tool; every fifth has failed. */
async function dayOfRuns(producer: Producer): Promise<void> {
  for (let n = 0; n < 40; n += 1) {
    const start_ms = Date.now() - ((n * 7) % 22) * hour_ms - 60_000;
    const at = (ms: number) => new Date(start_ms + ms).toISOString();
    const agent = agents[n % agents.length];
    const run_id = await producer.createRun({ title: titles[n % titles.length], agent, at: at(0) });
    const usage = { input_tokens: 700 + 131 * n, output_tokens: 40 + 17 * n };
    const text = "Done.";
    const end =
      n % 5 === 4
        ? { type: "run.failed", at: at(9_000), payload: { error: { code: "timeout", message: "no answer in 30 s" } } }
        : { type: "run.completed", at: at(9_000), payload: { output: { text } } };
    await producer.emit(
      run_id,
      { type: "tool.started", span_id: "c1", at: at(100), payload: { name: ["search", "fetch"][n % 2] } },
      { type: "tool.completed", span_id: "c1", at: at(700 + 90 * n), payload: { result: "ok" } },
      { type: "message.completed", span_id: "m1", at: at(8_000), payload: { text, usage, model: models[n % 3] } },
      end,
    );
  }
}

/** A log with something for every page. */
export async function stock(producer: Producer): Promise<void> {
  await tripRun(producer, true);
  await dayOfRuns(producer);
}
