export interface Toast {
  id: number;
  text: string;
  tone: "plain" | "bad";
}

const shown_ms = 5_000;
const shown_max = 4;

/** Short messages about what was just done; anything that must not be missed is shown on its page. */
class Toasts {
  list = $state.raw<readonly Toast[]>([]);
  #next = 1;

  tell(text: string, tone: Toast["tone"] = "plain"): void {
    const id = this.#next;
    this.#next += 1;
    this.list = [...this.list, { id, text, tone }].slice(-shown_max);
    // A failure stays until it is dismissed.
    if (tone === "plain") setTimeout(() => this.close(id), shown_ms);
  }

  close(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id);
  }
}

export const toasts = new Toasts();
