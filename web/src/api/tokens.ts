import { call } from "./client";
import type { NewToken, Token } from "./types";

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
    const response = await call(path, { signal });
    return ((await response.json()) as { tokens: Token[] }).tokens;
  },

  /** The only answer that ever has the secret. */
  async create(wanted: Wanted): Promise<NewToken> {
    const headers = { "content-type": "application/json" };
    const response = await call(path, { method: "POST", headers, body: JSON.stringify(wanted) });
    return (await response.json()) as NewToken;
  },

  revoke: (token_id: string) => call(`${path}/${encodeURIComponent(token_id)}`, { method: "DELETE" }),
};
