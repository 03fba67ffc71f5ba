/**
 * The bearer token lives in this tab's session storage and nowhere else: not in a URL (the server refuses
 * those), not in a cookie, not beyond the tab.
 */
const key = "runreel.token";

let memory: string | null = null;

export function readToken(): string | null {
  try {
    return sessionStorage.getItem(key) ?? memory;
  } catch {
    // Storage can be forbidden (private windows, embedded pages); the token then lasts as long as the page.
    return memory;
  }
}

export function writeToken(token: string | null): void {
  memory = token;
  try {
    if (token === null) sessionStorage.removeItem(key);
    else sessionStorage.setItem(key, token);
  } catch {
    // `memory` has it.
  }
}

export function authorization(): Record<string, string> {
  const token = readToken();
  return token === null ? {} : { authorization: `Bearer ${token}` };
}
