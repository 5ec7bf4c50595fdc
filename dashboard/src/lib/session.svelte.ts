// Who looks at the page, what they may do, and how the page looks to them.

import { get, send } from "./api";
import type { Me } from "./types";

type Theme = "auto" | "light" | "dark";

class Session {
  me = $state.raw<Me>();
  store = $state("");
  version = $state("");
  needsToken = $state(false);
  theme = $state<Theme>("auto");

  constructor() {
    const kept = stored("perdure:theme");
    this.theme = kept === "light" || kept === "dark" ? kept : "auto";
    this.paint();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    window.addEventListener("perdure:unauthorized", () => (this.needsToken = true));
  }

  private paint(): void {
    const isDark = this.theme === "dark" || (this.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = isDark ? "dark" : "light";
  }

  nextTheme(): void {
    this.theme = this.theme === "auto" ? "light" : this.theme === "light" ? "dark" : "auto";
    try {
      localStorage.setItem("perdure:theme", this.theme);
    } catch {
      // A browser that keeps nothing still shows the theme until the page is closed.
    }
    this.paint();
  }

  async load(): Promise<void> {
    try {
      const root = await get<{ store: string; perdure: string }>("/v1");
      this.store = root.store;
      this.version = root.perdure;
      this.me = await get<Me>("/v1/me");
      this.needsToken = false;
    } catch {
      // Each page says by itself what it could not load.
    }
  }

  async login(token: string): Promise<void> {
    await send("POST", "/v1/session", { token });
    await this.load();
  }

  may(act: string): boolean {
    return this.me === undefined || this.me.acts.includes(act);
  }
}

function stored(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export const session = new Session();
