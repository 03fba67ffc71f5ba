/** What the browser's tab shows of the page: its title, and an icon for its status. */
class Tab {
  /** The page's own title. */
  title = $state("");
  /** The status of the run that the page is about; empty for other pages. */
  status = $state("");
  /** The number of open interrupts of all runs. */
  asking = $state(0);

  get text(): string {
    const sign = signs[this.status];
    const words = [sign ? `${sign} ${this.title}` : this.title, "Runreel"].filter((word) => word !== "");
    return `${this.asking > 0 ? `(${this.asking}) ` : ""}${words.join(" · ")}`;
  }

  get icon(): string {
    if (this.asking > 0 || this.status === "interrupted") return "/favicon-asking.svg";
    const own = this.status === "stalled" ? "failed" : this.status;
    return ["running", "completed", "failed"].includes(own) ? `/favicon-${own}.svg` : "/favicon.svg";
  }

  show(title: string, status = ""): void {
    this.title = title;
    this.status = status;
  }
}

const signs: Record<string, string> = {
  queued: "○",
  running: "●",
  waiting: "◌",
  interrupted: "‖",
  completed: "✓",
  failed: "✕",
  cancelled: "–",
  stalled: "!",
};

export const browserTab = new Tab();
