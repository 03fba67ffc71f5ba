/**
 * The bearer token lives in this tab's session storage, or, when the person says so, in the browser's local storage; not
 * in a URL that is sent (the server refuses those), not in a cookie.
 */
const key = "runreel.token";

let memory: string | null = null;

export function readToken(): string | null {
  try {
    // The tab's own first: a link that was shared is followed with its token, whoever else is signed in.
    return sessionStorage.getItem(key) ?? localStorage.getItem(key) ?? memory;
  } catch {
    // Storage can be forbidden (private windows, embedded pages); the token then lasts as long as the page.
    return memory;
  }
}

export function isRemembered(): boolean {
  try {
    return localStorage.getItem(key) !== null;
  } catch {
    return false;
  }
}

/** Keeps the token for this tab, or for all tabs of the browser until it is removed. */
export function writeToken(token: string | null, isForAll = false): void {
  memory = token;
  try {
    sessionStorage.removeItem(key);
    localStorage.removeItem(key);
    if (token !== null) (isForAll ? localStorage : sessionStorage).setItem(key, token);
  } catch {
    // `memory` has it.
  }
}

/** The token of a shared link, which stands behind its `#`: taken for this tab and out of the address. */
export function takeToken(): void {
  const token = /^#token=([\w.~+/=-]+)$/.exec(location.hash)?.[1];
  if (token === undefined) return;
  memory = token;
  try {
    sessionStorage.setItem(key, token);
  } catch {
    // `memory` has it.
  }
  history.replaceState(history.state, "", location.pathname + location.search);
}

export function authorization(): Record<string, string> {
  const token = readToken();
  return token === null ? {} : { authorization: `Bearer ${token}` };
}
