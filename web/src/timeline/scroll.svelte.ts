import { detached, following, newRows, step, type Follow, type FollowInput } from "./follow";

/** Rows of a replay do not count as new; those after its end do. */
const notYet = Infinity;

/** One scrolled box that may follow its end. The state machine is in `follow.ts`; this binds it to an element. */
export class Scroll {
  follow = $state.raw<Follow>(detached(notYet));
  /** Where this class itself last scrolled to; at a position above it, the reader has scrolled. */
  #parked = 0;
  #element: HTMLElement | null = null;

  constructor(startsFollowing: boolean) {
    if (startsFollowing) this.follow = following;
  }

  /** The reader's position, restored when the tab is opened again. */
  #top = 0;

  bind = (element: HTMLElement): { destroy: () => void } => {
    this.#element = element;
    if (!this.isFollowing && this.#top > 0) this.to(this.#top);
    // Whatever grows, in it or around it, the end stays in view before it is drawn.
    const sizes = new ResizeObserver(() => this.keep());
    for (const each of [element, ...element.children]) sizes.observe(each);
    return {
      destroy: () => {
        sizes.disconnect();
        this.#element = null;
      },
    };
  };

  get isFollowing(): boolean {
    return this.follow.mode === "following";
  }

  fresh(rows: number): number {
    return newRows(this.follow, rows);
  }

  send(input: FollowInput, rows: number): void {
    this.follow = step(this.follow, input, rows);
    if (this.isFollowing) this.toEnd();
  }

  /** The element's `scroll` event. `slack` is how near the end counts as the end. */
  scrolled(rows: number, slack: number): void {
    const element = this.#element;
    if (element === null) return;
    const top = element.scrollTop;
    this.#top = top;
    if (Math.abs(top - this.#parked) < 1) return;
    const at_end = top >= element.scrollHeight - element.clientHeight - slack;
    const away = top < this.#parked && !at_end;
    this.follow = step(this.follow, { kind: "scrolled", at_end, away }, rows);
    if (!this.isFollowing) this.#parked = -1;
  }

  /** Shows the beginning, also of rows that arrive later. */
  toStart(): void {
    this.follow = detached(notYet);
    this.to(0);
  }

  /** The replay is over: later rows count as new. */
  caughtUp(rows: number): void {
    if (!this.isFollowing && this.follow.seen === notYet) this.follow = detached(rows);
  }

  /** To be called after the content grew or shrank. */
  keep(): void {
    if (this.isFollowing) this.toEnd();
  }

  toEnd(): void {
    const element = this.#element;
    if (element !== null) this.to(element.scrollHeight);
  }

  to(top: number): void {
    const element = this.#element;
    if (element === null) return;
    element.scrollTop = top;
    // Read back, because the browser has clamped it.
    this.#parked = element.scrollTop;
  }
}
