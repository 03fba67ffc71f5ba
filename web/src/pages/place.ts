import { router } from "./router.svelte";

/** How long it takes until what was there is there again. */
const patience_ms = 3_000;

/** A box that stands where it stood, for who comes back to the page. */
export function keepScroll(box: HTMLElement) {
  const place = `${router.place} scroll`;
  const before = router.kept<number>(place) ?? 0;
  let top = before;
  let frame = 0;
  const until_ms = performance.now() + patience_ms;

  // What it holds is read first, and grows.
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
