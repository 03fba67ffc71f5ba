import { isEvent, type Control, type Received, type RunEvent, type Snapshot } from "@runreel/client";
import type { RunView } from "./fold";
import { rowOf } from "./eventrow";

/** Builders for the tests beside this folder's code. */
export const run_id = "0195f3a0-0000-7000-8000-000000000001";
const start_ms = Date.parse("2025-04-01T12:00:00.000Z");

export const atAfter = (ms: number): string => {
  const whole = Math.floor(ms);
  const micros = String(Math.round((ms - whole) * 1000)).padStart(3, "0");
  return new Date(start_ms + whole).toISOString().replace("Z", `${micros}Z`);
};

type Over = Partial<Omit<RunEvent, "payload">> & { ms?: number; payload?: unknown };

export function event(seq: number, type: string, over: Over = {}): RunEvent {
  const { ms, ...fields } = over;
  return {
    run_id,
    seq,
    type,
    role: "agent",
    agent: "tester",
    owner_id: "0".repeat(64),
    at: atAfter(ms ?? seq * 10),
    payload: {},
    ...fields,
  } as RunEvent;
}

/** An event's place in the tree; on the wire, what is not set is left out. */
export const inSpan = (span_id: string, parent_span_id?: string) =>
  parent_span_id === undefined ? { span_id } : { span_id, parent_span_id };

/** As a stream yields it. */
export const told = (event: RunEvent | Snapshot | Control): Received => ({
  event,
  id: "seq" in event ? String(event.seq) : null,
  data: JSON.stringify(event),
});

/** Passes it to a view as a page does. */
export function tell(view: RunView, { event, data }: Received): void {
  if (isEvent(event)) view.take(rowOf(event), event, data);
  else view.takeFrame(event);
}
