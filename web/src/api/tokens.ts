import { transport } from "./client";
import type { NewToken, Token } from "@runreel/client";

/** What a new token may do, and for how long: `null` is without an end. */
export interface Wanted {
  name: string;
  scopes: string[];
  ttl_s: number | null;
}

const path = "/api/tokens";

/** The API tokens of whoever asks. */
export const tokens = {
  async list(signal: AbortSignal): Promise<Token[]> {
    return (await transport.json<{ tokens: Token[] }>(path, { signal })).tokens;
  },

  /** The only answer that ever has the secret. */
  create: (body: Wanted) => transport.json<NewToken>(path, { method: "POST", body }),

  revoke: (token_id: string) => transport.call(`${path}/${token_id}`, { method: "DELETE" }),
};
