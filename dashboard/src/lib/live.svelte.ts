// Loading, and loading again while the page is visible.

import { Problem } from "./api";

/** What `load` gave last, loaded again every `every` ms and whenever `refresh` is called. */
export class Live<T> {
  data = $state.raw<T>();
  error = $state.raw<unknown>();
  isLoading = $state(true);
  private timer: ReturnType<typeof setTimeout> | undefined;
  private control: AbortController | undefined;
  private stopped = false;
  private failures = 0;
  private readonly seen = () => {
    if (!document.hidden && this.every) void this.refresh();
  };

  constructor(
    private readonly load: (signal: AbortSignal) => Promise<T>,
    private readonly every = 0,
  ) {
    document.addEventListener("visibilitychange", this.seen);
    void this.refresh();
  }

  async refresh(): Promise<void> {
    if (this.stopped) return;
    clearTimeout(this.timer);
    this.control?.abort();
    const control = (this.control = new AbortController());
    try {
      const data = await this.load(control.signal);
      if (control.signal.aborted) return;
      this.data = data;
      this.error = undefined;
      this.failures = 0;
    } catch (error) {
      if (control.signal.aborted) return;
      this.error = error;
      this.failures += 1;
    }
    this.isLoading = false;
    const isFinal = this.error instanceof Problem && [400, 401, 403, 404, 422].includes(this.error.status);
    if (this.every && !this.stopped && !isFinal) {
      const wait = Math.min(30_000, this.every * 2 ** Math.min(4, this.failures));
      this.timer = setTimeout(() => {
        if (!document.hidden) void this.refresh();
      }, wait);
    }
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    this.control?.abort();
    document.removeEventListener("visibilitychange", this.seen);
  }
}

/** A `Live` for the effect that makes it: it stops when what the effect read changes, or its component goes. */
export function live<T>(make: () => { load: (signal: AbortSignal) => Promise<T>; every?: number } | null): { readonly data: T | undefined; readonly error: unknown; readonly isLoading: boolean; refresh: () => void } {
  let current = $state.raw<Live<T> | null>(null);
  let before: T | undefined; // shown until the next one is there
  $effect(() => {
    const made = make();
    if (!made) {
      current = null;
      return;
    }
    const live = new Live<T>(made.load, made.every);
    current = live;
    return () => {
      before = live.data ?? before;
      live.stop();
    };
  });
  return {
    get data() {
      return current?.data ?? before;
    },
    get error() {
      return current?.error;
    },
    get isLoading() {
      return current?.isLoading ?? true;
    },
    refresh: () => void current?.refresh(),
  };
}
