/** The current time for display. The timer runs only while it is in use. */
class Clock {
  now = $state(Date.now());
  #users = 0;
  #timer: ReturnType<typeof setInterval> | null = null;

  /** Ticks until the returned function is called. */
  use(): () => void {
    this.#users += 1;
    this.now = Date.now();
    this.#timer ??= setInterval(() => (this.now = Date.now()), tick_ms);
    return () => {
      this.#users -= 1;
      if (this.#users > 0 || this.#timer === null) return;
      clearInterval(this.#timer);
      this.#timer = null;
    };
  }
}

const tick_ms = 250;

export const clock = new Clock();
