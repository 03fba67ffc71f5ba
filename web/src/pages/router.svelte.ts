import { routeOf, searchWith } from "./routes";

/** The address bar as state. Links stay plain `<a href>`; a click on one of ours is taken here. */
class Router {
  path = $state(location.pathname);
  search = $state(location.search);

  get route() {
    return routeOf(this.path);
  }

  param(name: string): string | null {
    return new URLSearchParams(this.search).get(name);
  }

  go(href: string): void {
    history.pushState(null, "", href);
    this.#read();
  }

  /** Changes fields of the search in place: a filter is not a step to go back over. */
  set(changes: Record<string, string | number | null>): void {
    history.replaceState(null, "", this.path + searchWith(this.search, changes));
    this.#read();
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

export const router = new Router();
