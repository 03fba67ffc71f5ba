import type { DeltaEvent, RunEvent, Snapshot } from "../api/types";

/** One frame of a stream, decoded. `bytes` is the frame's JSON as the server wrote it. */
export type FeedMessage =
  | { kind: "event"; event: RunEvent; id: string | null; bytes: string }
  | { kind: "delta"; delta: DeltaEvent }
  | { kind: "snapshot"; snapshot: Snapshot }
  | { kind: "caught_up"; last_seq: number | null; cursor: string | null }
  | { kind: "gap"; requested_after: number; first_seq: number | null }
  | { kind: "end"; status: string; last_seq: number | null }
  | { kind: "draining"; retry_ms: number };

export interface Frame {
  event: string | undefined;
  id: string | undefined;
  data: string;
}

/** `null` for a control frame of a later server that this page does not know: skipped, never an error. */
export function decode(frame: Frame): FeedMessage | null {
  const type = frame.event ?? "message";
  const data = JSON.parse(frame.data) as Record<string, unknown>;
  if (type.startsWith("stream.")) return control(type, data);
  if (typeof data["seq"] !== "number") {
    if (type === "message.snapshot") return { kind: "snapshot", snapshot: data as unknown as Snapshot };
    return { kind: "delta", delta: data as unknown as DeltaEvent };
  }
  const event = data as unknown as RunEvent;
  return { kind: "event", event, id: frame.id ?? null, bytes: frame.data };
}

function control(type: string, data: Record<string, unknown>): FeedMessage | null {
  switch (type) {
    case "stream.caught_up":
      return { kind: "caught_up", last_seq: number(data["last_seq"]), cursor: text(data["cursor"]) };
    case "stream.gap":
      return {
        kind: "gap",
        // A feed has an opaque cursor here, which says nothing to people.
        requested_after: Number(data["requested_after"]) || 0,
        first_seq: number(data["first_seq"]),
      };
    case "stream.end":
      return { kind: "end", status: text(data["status"]) ?? "completed", last_seq: number(data["last_seq"]) };
    case "stream.draining":
    case "stream.reset":
      return { kind: "draining", retry_ms: number(data["retry_ms"]) ?? 1000 };
    default:
      return null;
  }
}

const number = (value: unknown): number | null => (typeof value === "number" ? value : null);
const text = (value: unknown): string | null => (typeof value === "string" ? value : null);
