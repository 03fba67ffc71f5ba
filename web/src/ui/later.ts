import { toasts } from "./toasts.svelte";

/**
 * Loads a part of the page when it is shown. If that fails, mostly because the server is unreachable, a toast says so
 * and the promise never settles; the next call tries again.
 */
export function later<T>(load: () => Promise<T>): Promise<T> {
  return load().catch(() => {
    toasts.tell("It could not be loaded. Try again.", "bad");
    return new Promise<T>(() => undefined);
  });
}
