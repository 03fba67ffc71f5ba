import type { components } from "@runreel/client";

/**
 * The bearer token is kept in this tab's session storage or, if the person chooses so, in the browser's local storage;
 * never in a URL that is sent (the server refuses those) or in a cookie.
 */
const key = "runreel.token";

let memory: string | null = null;

export function readToken(): string | null {
  try {
    // The tab's own first: a shared link is opened with its token, even if another one is remembered.
    return sessionStorage.getItem(key) ?? localStorage.getItem(key) ?? memory;
  } catch {
    // Storage can be forbidden (private windows, embedded pages); the token then lasts as long as the page.
    return memory;
  }
}

/** Whether the tab uses the token that all tabs share. */
export function isRemembered(): boolean {
  try {
    return sessionStorage.getItem(key) === null && localStorage.getItem(key) !== null;
  } catch {
    return false;
  }
}

/** Stores the token for this tab, or for all tabs until it is removed. Another token that they remember is kept. */
export function writeToken(token: string | null, isForAll = false): void {
  memory = null;
  try {
    sessionStorage.removeItem(key);
    if (token === null || isForAll || localStorage.getItem(key) === token) localStorage.removeItem(key);
    if (token !== null) (isForAll ? localStorage : sessionStorage).setItem(key, token);
  } catch {
    memory = token;
  }
}

const question =
  "This link signs you in with somebody's full access: what you do in this tab is done in their account, and they see it.\n\nUse it only if you know who made the link.";

/** Whether a token allows more than reading. One that is limited to a run, a tree or a thread is refused here. */
async function doesMore(token: string): Promise<boolean> {
  try {
    const headers = { authorization: `Bearer ${token}` };
    const response = await fetch("/api/server", { headers, signal: AbortSignal.timeout(5_000) });
    if (!response.ok) return response.status !== 401 && response.status !== 403;
    const { principal } = (await response.json()) as components["schemas"]["ServerInfo"];
    return principal.is_authenticated && principal.scopes.some((scope) => scope !== "read");
  } catch {
    return true;
  }
}

/**
 * Takes the token of a shared link from its fragment, and removes it from the address at once. The link's author may
 * have put their own token there, so one that allows more than reading is used only if the person agrees.
 */
export async function takeToken(): Promise<void> {
  const token = /^#token=([\w.~+/=-]+)$/.exec(location.hash)?.[1];
  if (token === undefined) return;
  history.replaceState(history.state, "", location.pathname + location.search);
  if (token !== readToken() && (await doesMore(token)) && !confirm(question)) return;
  try {
    sessionStorage.setItem(key, token);
  } catch {
    memory = token;
  }
}

export function authorization(): Record<string, string> {
  const token = readToken();
  return token === null ? {} : { authorization: `Bearer ${token}` };
}
