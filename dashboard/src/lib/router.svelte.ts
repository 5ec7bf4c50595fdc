// Where the page is: `#/runs?status=failed`. The fragment needs nothing of the server, so any path prefix works.

export class Route {
  path = $state<string[]>([]);
  query = $state.raw(new URLSearchParams());

  constructor() {
    this.read();
    window.addEventListener("hashchange", () => this.read());
  }

  private read(): void {
    const [path, query] = location.hash.replace(/^#/, "").split(/\?(.*)/s);
    const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
    if (parts.join("/") !== this.path.join("/")) this.path = parts;
    this.query = new URLSearchParams(query ?? "");
  }

  get page(): string {
    return this.path[0] ?? "runs";
  }

  param(name: string): string {
    return this.query.get(name) ?? "";
  }

  /** Changes parameters of this page. `replace` leaves no entry in the browser's history. */
  set(changes: Record<string, string | null>, replace = true): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") query.delete(name);
      else query.set(name, value);
    }
    const target = link(this.path, query);
    if (target === location.hash) return;
    if (replace) history.replaceState(null, "", target);
    else history.pushState(null, "", target);
    this.read();
  }
}

export function link(path: string[] | string, query: URLSearchParams | Record<string, string> = {}): string {
  const parts = typeof path === "string" ? path.split("/").filter(Boolean) : path;
  const text = new URLSearchParams(query).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export const route = new Route();
export const go = (target: string): void => {
  location.hash = target;
};
export const runLink = (run: string, query: Record<string, string> = {}): string => link(["runs", run], query);
