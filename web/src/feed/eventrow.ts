import type { RunEvent } from "@runreel/client";
import { familyOf, fields, textOf } from "@runreel/client/fold";
import { atMs } from "./read";
import { shared, type EventRow, type Level } from "./row";
import { titleOf } from "./title";

/** The row of an event that arrived in full, by the server's rules for its index. */
export function rowOf(event: RunEvent): EventRow {
  const { type, payload } = event;
  const { name, title, duration_ms, run_id } = fields(payload);
  return {
    seq: event.seq,
    at_ms: atMs(event.at),
    type: shared(type),
    level: levelOf(type),
    span_id: event.span_id ?? null,
    parent_span_id: event.parent_span_id ?? null,
    name: cut(textOf(name) ?? textOf(title)),
    title: titleOf(type, payload),
    duration_ms: typeof duration_ms === "number" && duration_ms >= 0 ? duration_ms : null,
    child_run_id: familyOf(type) === "worker" ? textOf(run_id) : null,
  };
}

function levelOf(type: string): Level {
  if (type.endsWith(".failed") || type === "log.error") return "error";
  if (type === "log.warn" || type === "run.cancelled") return "warn";
  return type === "log.debug" ? "debug" : "info";
}

const name_chars_max = 256;
const cut = (name: string | null) => name?.slice(0, name_chars_max) ?? null;
