/** A list of runs with a name: the search of its address. */
export interface SavedView {
  name: string;
  search: string;
}

const key = "runreel.views";
const views_max = 50;

/** The views that are always offered. */
export const usualViews: readonly SavedView[] = [
  { name: "Failed in the last day", search: "?status=failed&since=24h&runs=all" },
  { name: "Going on", search: "?status=running,waiting,queued,interrupted" },
  { name: "Waiting for a person", search: "?status=interrupted&runs=all" },
  { name: "Longest of the week", search: "?since=7d&sort=duration" },
];

/** The saved views, kept in the browser. */
class Views {
  list = $state.raw<readonly SavedView[]>(stored());

  /** Saves a view; an existing name gets the new search. */
  save(name: string, search: string): void {
    this.#keep([...this.list.filter((view) => view.name !== name), { name, search }].slice(-views_max));
  }

  remove(name: string): void {
    this.#keep(this.list.filter((view) => view.name !== name));
  }

  #keep(list: readonly SavedView[]): void {
    this.list = list;
    try {
      localStorage.setItem(key, JSON.stringify(list));
    } catch {
      // They then last as long as the page.
    }
  }
}

function stored(): readonly SavedView[] {
  try {
    const kept = JSON.parse(localStorage.getItem(key) ?? "[]") as unknown;
    if (!Array.isArray(kept)) return [];
    const isView = (view: SavedView | null) =>
      typeof view?.name === "string" && typeof view.search === "string";
    return (kept as (SavedView | null)[]).filter((view): view is SavedView => isView(view));
  } catch {
    return [];
  }
}

export const savedViews = new Views();
