/** A query that was run in this browser. */
export interface Asked {
  query: string;
  /** Milliseconds since the epoch. */
  at: number;
  rows: number;
  elapsed_ms: number;
}

const key = "runreel.sql.history";
const kept_max = 60;

/** The queries that were run, newest first, each once. */
class AskedBefore {
  list = $state.raw<readonly Asked[]>(stored());

  add(asked: Asked): void {
    this.#keep([asked, ...this.list.filter(({ query }) => query !== asked.query)].slice(0, kept_max));
  }

  clear(): void {
    this.#keep([]);
  }

  #keep(list: readonly Asked[]): void {
    this.list = list;
    try {
      localStorage.setItem(key, JSON.stringify(list));
    } catch {
      // It then lasts as long as the page.
    }
  }
}

function stored(): Asked[] {
  try {
    const list = JSON.parse(localStorage.getItem(key) ?? "[]") as unknown;
    return Array.isArray(list) ? list.filter((each) => typeof each?.query === "string") : [];
  } catch {
    return [];
  }
}

export const askedBefore = new AskedBefore();
