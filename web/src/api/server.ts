import type { components } from "@runreel/client";
import { transport } from "./client";

type Schemas = components["schemas"];

/** The version, the principal, the retention. */
export type About = Schemas["ServerInfo"];
/** Agents, runners, queues and leases. */
export type Executors = Schemas["Executors"];

export const about = (signal: AbortSignal) => transport.json<About>("/api/server", { signal });

export const executors = (signal: AbortSignal) => transport.json<Executors>("/api/agents", { signal });

/** Whether the server can store events. */
export interface Ready {
  status: string;
  reason?: string;
  /** How long the answer took. */
  took_ms: number;
}

export async function ready(signal: AbortSignal): Promise<Ready> {
  const began_ms = performance.now();
  const response = await transport.open("/readyz", { signal });
  const body = (await response.json().catch(() => ({}))) as { status?: string; reason?: string };
  const took_ms = performance.now() - began_ms;
  return {
    status: response.ok ? "ok" : (body.status ?? `http_${response.status}`),
    took_ms,
    ...(body.reason && { reason: body.reason }),
  };
}
