import { RunreelError } from "@runreel/client";
import { runs } from "../api/client";
import { about } from "../api/server";

type Scope = "read" | "emit" | "approve" | "admin";

/** How long the first answer is waited for. */
const patience_ms = 5_000;

/** The permissions of this tab's credential, so that nothing is offered that would be refused. */
class Access {
  /** Null until it has been read. */
  #scopes = $state.raw<readonly string[] | null>(null);
  /** The credential is limited to one run, tree or thread. */
  isLimited = $state(false);
  #abort = new AbortController();
  /** Resolved once it is known, or when that takes too long. */
  readonly first = Promise.race([this.look(), new Promise<void>((late) => setTimeout(late, patience_ms))]);

  may(scope: Scope): boolean {
    return this.#scopes !== null && (this.#scopes.includes("admin") || this.#scopes.includes(scope));
  }

  /** Reads them again for another credential. Without an answer everything is offered, and the server decides. */
  async look(): Promise<void> {
    this.#abort.abort();
    this.#abort = new AbortController();
    const { signal } = this.#abort;
    this.#scopes = null;
    this.isLimited = false;
    try {
      const { scopes } = (await about(signal)).principal;
      if (!scopes.includes("admin")) this.isLimited = await isForbidden(runs.list({ limit: 1 }, signal));
      if (!signal.aborted) this.#scopes = scopes;
    } catch (error) {
      if (signal.aborted) return;
      const status = error instanceof RunreelError ? error.status : 0;
      this.isLimited = status === 403;
      this.#scopes = status === 403 ? ["read"] : status === 401 ? [] : ["admin"];
    }
  }
}

async function isForbidden(asked: Promise<unknown>): Promise<boolean> {
  try {
    await asked;
    return false;
  } catch (error) {
    return error instanceof RunreelError && error.status === 403;
  }
}

export const access = new Access();
