import type { components } from "@runreel/client";
import { transport } from "./client";

type Schemas = components["schemas"];

/** The version, who asks, how long runs stay. */
export type About = Schemas["ServerInfo"];
/** Agents, runners, queues, and who holds what. */
export type Executors = Schemas["Executors"];

export const about = (signal: AbortSignal) => transport.json<About>("/api/server", { signal });

export const executors = (signal: AbortSignal) => transport.json<Executors>("/api/agents", { signal });

/** Whether it can store events. */
export interface Ready {
  status: string;
  reason?: string;
  /** How long the answer took. */
  took_ms: number;
}

export async function ready(signal: AbortSignal): Promise<Ready> {
  const began_ms = performance.now();
  const response = await transport.open("/readyz", { signal });
  const told = (await response.json().catch(() => ({}))) as { status?: string; reason?: string };
  const took_ms = performance.now() - began_ms;
  return {
    status: response.ok ? "ok" : (told.status ?? `http_${response.status}`),
    took_ms,
    ...(told.reason && { reason: told.reason }),
  };
}
