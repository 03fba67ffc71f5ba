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

/** Whether the tab's token is the one of all tabs. */
export function isRemembered(): boolean {
  try {
    return sessionStorage.getItem(key) === null && localStorage.getItem(key) !== null;
  } catch {
    return false;
  }
}

/** Keeps the token for this tab, or for all tabs of the browser until it is removed; what they remember stays else. */
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

/** The token of a shared link, which stands behind its `#`: taken for this tab and out of the address. */
export function takeToken(): void {
  const token = /^#token=([\w.~+/=-]+)$/.exec(location.hash)?.[1];
  if (token === undefined) return;
  try {
    sessionStorage.setItem(key, token);
  } catch {
    memory = token;
  }
  history.replaceState(history.state, "", location.pathname + location.search);
}

export function authorization(): Record<string, string> {
  const token = readToken();
  return token === null ? {} : { authorization: `Bearer ${token}` };
}
