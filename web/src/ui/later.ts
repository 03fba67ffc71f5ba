import { toasts } from "./toasts.svelte";

/**
 * A part of the page that is loaded when it is shown. When that fails, the server is away mostly: the person is told,
 * and the next time it is tried again.
 */
export function later<T>(load: () => Promise<T>): Promise<T> {
  return load().catch(() => {
    toasts.tell("It could not be loaded. Try again.", "bad");
    return new Promise<T>(() => undefined);
  });
}
