// The rows of the list: pages as the reader scrolls, the newest again and again.

import { get, type Query } from "../lib/api";
import type { RunRow } from "../lib/types";

const PAGE = 200;
const MOST_EMPTY = 20;

interface RunsPage {
  runs: RunRow[];
  cursor: string | null;
}

export class RunList {
  rows = $state.raw<RunRow[]>([]);
  error = $state.raw<unknown>();
  isLoading = $state(true);
  isComplete = $state(false);
  changed = $state.raw<Set<string>>(new Set());
  private cursor: string | null = null;
  private isBusy = false;
  private stopped = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly query: Query,
    private readonly every: number,
  ) {
    void this.start();
  }

  private async start(): Promise<void> {
    await this.more();
    this.isLoading = false;
    this.later();
  }

  private later(): void {
    if (this.stopped) return;
    this.timer = setTimeout(async () => {
      if (!document.hidden) await this.refresh();
      this.later();
    }, this.every);
  }

  /** Loads the next page. A page may be short, or empty, although more follow. */
  async more(): Promise<void> {
    if (this.isBusy || this.isComplete || this.stopped) return;
    this.isBusy = true;
    try {
      for (let empty = 0; empty < MOST_EMPTY; empty++) {
        const page = await get<RunsPage>("/v1/runs", { ...this.query, limit: PAGE, after: this.cursor });
        if (this.stopped) return;
        this.cursor = page.cursor;
        this.isComplete = page.cursor === null;
        this.error = undefined;
        if (page.runs.length) {
          const known = new Set(this.rows.map((run) => run.run_id));
          this.rows = [...this.rows, ...page.runs.filter((run) => !known.has(run.run_id))];
        }
        if (page.runs.length || this.isComplete) break;
      }
    } catch (error) {
      this.error = error;
    } finally {
      this.isBusy = false;
    }
  }

  /** Reads the newest page again: new runs come first, known ones change in place, and those that left it go. */
  async refresh(): Promise<void> {
    if (this.isBusy || this.stopped) return;
    this.isBusy = true;
    try {
      const page = await get<RunsPage>("/v1/runs", { ...this.query, limit: PAGE });
      if (this.stopped) return;
      this.error = undefined;
      const last = page.runs.at(-1)?.run_id;
      const end = last === undefined ? -1 : this.rows.findIndex((run) => run.run_id === last);
      if (end < 0 && page.cursor !== null && this.rows.length > 0) {
        // More new runs than one page holds: the list begins anew.
        this.rows = page.runs;
        this.cursor = page.cursor;
        this.isComplete = false;
        this.changed = new Set();
        return;
      }
      // What lay within the newest page and is not in it any more does not match any more.
      const head = end >= 0 ? this.rows.slice(0, end + 1) : this.rows;
      const before = new Map(head.map((run) => [run.run_id, run]));
      const changed = new Set(page.runs.filter((run) => before.size > 0 && before.get(run.run_id)?.status !== run.status).map((run) => run.run_id));
      const differs = head.length !== page.runs.length || page.runs.some((run, index) => run.run_id !== head[index].run_id || run.entries !== head[index].entries || run.owner !== head[index].owner || run.status !== head[index].status);
      if (differs) {
        const rest = end >= 0 ? this.rows.slice(end + 1) : [];
        this.rows = [...page.runs, ...rest];
        if (!rest.length) {
          this.cursor = page.cursor;
          this.isComplete = page.cursor === null;
        }
      }
      this.changed = changed;
    } catch (error) {
      this.error = error;
    } finally {
      this.isBusy = false;
    }
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
  }
}
