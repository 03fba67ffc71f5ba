import { router } from "./router.svelte";

/** How long the content may take to grow back. */
const patience_ms = 3_000;

/** Restores the scroll position of a box when the person comes back to the page. */
export function keepScroll(box: HTMLElement) {
  const place = `${router.place} scroll`;
  const before = router.kept<number>(place) ?? 0;
  let top = before;
  let frame = 0;
  const until_ms = performance.now() + patience_ms;

  // The content is read first, and grows.
  function restore() {
    box.scrollTop = before;
    const isThere = Math.abs(box.scrollTop - before) <= 1;
    if (!isThere && performance.now() < until_ms) frame = requestAnimationFrame(restore);
  }
  const scrolled = () => (top = box.scrollTop);
  const moved = () => cancelAnimationFrame(frame);
  box.addEventListener("scroll", scrolled, { passive: true });
  for (const name of ["wheel", "pointerdown", "keydown"])
    box.addEventListener(name, moved, { passive: true });
  if (before > 0) restore();
  return {
    destroy() {
      moved();
      router.keep(place, top);
    },
  };
}
