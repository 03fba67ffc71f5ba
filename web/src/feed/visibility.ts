import type { EventStream } from "@runreel/client";

/** How long a hidden tab keeps its stream. Browsers allow six connections per host over HTTP/1.1. */
export const hiddenTab_ms = 60_000;

/**
 * Closes the stream of a tab that stays hidden and resumes it, by its cursor, when the tab is looked at
 * again; a network that comes back ends the back-off. Returns the undo.
 */
export function followVisibility(stream: EventStream): () => void {
  let timer: ReturnType<typeof setTimeout> | null = null;
  const seen = () => {
    if (timer !== null) clearTimeout(timer);
    timer = null;
    if (document.visibilityState === "hidden") timer = setTimeout(() => stream.pause(), hiddenTab_ms);
    else stream.resume();
  };
  const online = () => stream.retryNow();
  document.addEventListener("visibilitychange", seen);
  window.addEventListener("online", online);
  return () => {
    if (timer !== null) clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
    window.removeEventListener("online", online);
  };
}
