import type { DeltaEvent, RunEvent } from "../src/events.js";

/** Builders for the tests beside this: frames as the server writes them, and what is in them. */
export const run_id = "0195f3a0-0000-7000-8000-000000000001";

export function event(
  seq: number,
  type: string,
  over: { span_id?: string; payload?: unknown } = {},
): RunEvent {
  const at = new Date(Date.UTC(2025, 3, 1, 12) + seq * 10).toISOString().replace("Z", "000Z");
  const told = {
    run_id,
    seq,
    type,
    role: "agent",
    agent: "tester",
    owner_id: "0".repeat(64),
    at,
    payload: {},
  };
  return { ...told, ...over } as RunEvent;
}

export function delta(span_id: string, offset: number, text: string, type = "message.delta"): DeltaEvent {
  return { ...event(0, type, { span_id }), seq: null, payload: { text, offset } } as unknown as DeltaEvent;
}

export function frame(type: string, data: unknown, id?: string | number): string {
  const head = id === undefined ? "" : `id: ${id}\n`;
  return `${head}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
}

export const eventFrame = (from: RunEvent): string => frame(from.type, from, from.seq);
