/** The columns of a list of runs besides status and title; `sort` is the server's name of the order. */
export const columns = [
  { id: "agent", label: "Agent", sort: null },
  { id: "thread", label: "Thread", sort: null },
  { id: "created", label: "Created", sort: "created" },
  { id: "updated", label: "Last event", sort: "updated" },
  { id: "duration", label: "Duration", sort: "duration" },
  { id: "tokens", label: "Tokens", sort: "tokens" },
  { id: "cost", label: "Cost", sort: "cost" },
  { id: "events", label: "Events", sort: "events" },
  { id: "id", label: "Id", sort: null },
] as const;

export type ColumnId = (typeof columns)[number]["id"];

const key = "runreel.columns";
const usual: readonly ColumnId[] = ["agent", "created", "duration", "tokens", "cost", "events"];

/** The columns that are shown, kept in the browser. */
class Columns {
  shown = $state.raw<ReadonlySet<ColumnId>>(stored());

  toggle(id: ColumnId): void {
    const next = new Set(this.shown);
    if (!next.delete(id)) next.add(id);
    this.shown = next;
    try {
      localStorage.setItem(key, [...next].join(","));
    } catch {
      // The choice then lasts as long as the page.
    }
  }
}

function stored(): ReadonlySet<ColumnId> {
  try {
    const names = localStorage.getItem(key)?.split(",");
    if (names !== undefined)
      return new Set(columns.map((column) => column.id).filter((id) => names.includes(id)));
  } catch {
    // As if nothing had been chosen.
  }
  return new Set(usual);
}

export const shownColumns = new Columns();
