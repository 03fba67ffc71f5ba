import { routeOf, searchWith } from "./routes";

/** Maximum number of history entries that are remembered. */
const kept_max = 30;

/** The address bar as state. Links stay plain `<a href>`; a click on one of the UI's own is handled here. */
class Router {
  path = $state(location.pathname);
  search = $state(location.search);
  /** The id of the entry in the browser's history, the same when the person goes back to it. */
  place = placeOf(history.state);
  readonly #kept = new Map<string, unknown>();

  constructor() {
    history.replaceState({ ...history.state, place: this.place }, "");
  }

  get route() {
    return routeOf(this.path);
  }

  param(name: string): string | null {
    return new URLSearchParams(this.search).get(name);
  }

  go(href: string): void {
    history.pushState({ place: newPlace() }, "", href);
    this.#read();
  }

  /** Changes fields of the search in place: a filter is not a step to go back over. */
  set(changes: Record<string, string | number | null>): void {
    history.replaceState(history.state, "", this.path + searchWith(this.search, changes));
    this.#read();
  }

  /** Keeps what a page restores when the person comes back to `place`. */
  keep(place: string, value: unknown): void {
    this.#kept.delete(place);
    this.#kept.set(place, value);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > kept_max && oldest !== undefined) this.#kept.delete(oldest);
  }

  kept<T>(place: string): T | undefined {
    return this.#kept.get(place) as T | undefined;
  }

  /** Forgets everything that is remembered, which may be another person's. */
  forget(): void {
    this.#kept.clear();
  }

  listen(): () => void {
    const read = () => this.#read();
    const click = (event: MouseEvent) => this.#click(event);
    window.addEventListener("popstate", read);
    document.addEventListener("click", click);
    return () => {
      window.removeEventListener("popstate", read);
      document.removeEventListener("click", click);
    };
  }

  #read(): void {
    this.place = placeOf(history.state);
    this.path = location.pathname;
    this.search = location.search;
  }

  #click(event: MouseEvent): void {
    const hasModifier = event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
    if (event.defaultPrevented || event.button !== 0 || hasModifier) return;
    const link = (event.target as Element).closest?.("a");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    // `/docs` and `/openapi.json` are the server's own pages.
    if (routeOf(link.pathname).page === "missing") return;
    event.preventDefault();
    this.go(link.pathname + link.search);
  }
}

let places = 0;
const newPlace = () => `${Date.now()}-${(places += 1)}`;
const placeOf = (state: unknown): string => (state as { place?: string } | null)?.place ?? newPlace();

export const router = new Router();

/** Binds a field to `q` in the address, which gets the trimmed text `pause_ms` after the last input. */
export function searchField(field: HTMLInputElement, pause_ms: number): void {
  const words = $derived(router.param("q") ?? "");
  let timer: ReturnType<typeof setTimeout> | undefined;
  field.oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(() => router.set({ q: field.value.trim() }), pause_ms);
  };
  $effect(() => {
    if (field.value.trim() !== words) field.value = words;
    return () => clearTimeout(timer);
  });
}
