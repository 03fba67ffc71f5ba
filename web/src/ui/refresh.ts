/**
 * Does the work now, and again `every_ms` milliseconds after each time, while the page is visible; in a tab that was
 * hidden for longer, at once when it is shown again. Returns a function that ends it.
 */
export function whileSeen(every_ms: number, work: () => Promise<void>): () => void {
  let timer: ReturnType<typeof setTimeout> | null = null;
  let isWorking = false;
  let isOver = false;
  let done_ms = -Infinity;

  async function due() {
    timer = null;
    if (isWorking || isOver || document.visibilityState === "hidden") return;
    isWorking = true;
    await work();
    isWorking = false;
    done_ms = Date.now();
    wait();
  }
  function wait() {
    if (isOver || isWorking) return;
    if (timer !== null) clearTimeout(timer);
    timer = setTimeout(() => void due(), Math.max(0, done_ms + every_ms - Date.now()));
  }
  document.addEventListener("visibilitychange", wait);
  wait();
  return () => {
    isOver = true;
    if (timer !== null) clearTimeout(timer);
    document.removeEventListener("visibilitychange", wait);
  };
}
