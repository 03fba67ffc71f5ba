export type Theme = "system" | "light" | "dark";

const key = "runreel.theme";
const order: Theme[] = ["system", "light", "dark"];

function stored(): Theme {
  try {
    const value = localStorage.getItem(key);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

/** The chosen theme; `system` leaves the choice to the browser. */
class ThemeChoice {
  current = $state.raw<Theme>(stored());

  apply(): void {
    const root = document.documentElement;
    if (this.current === "system") delete root.dataset["theme"];
    else root.dataset["theme"] = this.current;
  }

  next(): void {
    this.current = order[(order.indexOf(this.current) + 1) % order.length] as Theme;
    try {
      localStorage.setItem(key, this.current);
    } catch {
      // The choice then lasts as long as the page.
    }
    this.apply();
  }
}

export const theme = new ThemeChoice();
