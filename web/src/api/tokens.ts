import { transport } from "./client";
import type { NewToken, Token } from "@runreel/client";

/** The scopes and the lifetime of a new token; `null` is without expiry. */
export interface Wanted {
  name: string;
  scopes: string[];
  ttl_s: number | null;
}

const path = "/api/tokens";

/** The caller's API tokens. */
export const tokens = {
  async list(signal: AbortSignal): Promise<Token[]> {
    return (await transport.json<{ tokens: Token[] }>(path, { signal })).tokens;
  },

  /** The only response that ever contains the secret. */
  create: (body: Wanted) => transport.json<NewToken>(path, { method: "POST", body }),

  revoke: (token_id: string) => transport.call(`${path}/${token_id}`, { method: "DELETE" }),
};
