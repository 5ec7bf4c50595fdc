// Says when a run has changed: over server-sent events, and by asking where those do not get through.

import { address, get, runPath } from "../lib/api";
import { isOver } from "../lib/states";
import type { RunHeader } from "../lib/types";

const POLL_MS = 2_000;
const BURST_MS = 250;

export class Follow {
  header = $state.raw<RunHeader>();
  error = $state.raw<unknown>();
  /** Grows whenever the journal does. */
  tick = $state(0);
  isLive = $state(false);
  private source: EventSource | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private wanted: ReturnType<typeof setTimeout> | undefined;
  private stopped = false;
  private seen = "";

  constructor(readonly run: string) {
    void this.poll();
  }

  async refresh(): Promise<void> {
    try {
      const header = await get<RunHeader>(runPath(this.run));
      if (this.stopped) return;
      this.error = undefined;
      this.header = header;
      const mark = `${header.current_run_id} ${header.current_entries ?? header.entries} ${header.status} ${header.owner}`;
      if (mark !== this.seen) {
        this.seen = mark;
        this.tick += 1;
      }
      if (isOver(header.status)) this.close();
      else this.listen();
    } catch (error) {
      if (!this.stopped) this.error = error;
    }
  }

  private async poll(): Promise<void> {
    if (!document.hidden) await this.refresh();
    const over = this.header !== undefined && isOver(this.header.status);
    if (!this.stopped) this.timer = setTimeout(() => void this.poll(), over ? 15_000 : this.isLive ? 10_000 : POLL_MS);
  }

  /** Entries come in bursts: one reading serves those of a quarter of a second. */
  private soon(): void {
    this.wanted ??= setTimeout(() => {
      this.wanted = undefined;
      void this.refresh();
    }, BURST_MS);
  }

  private listen(): void {
    if (this.source || typeof EventSource === "undefined") return;
    const source = (this.source = new EventSource(address(runPath(this.run, "/history"), { first: -1 })));
    source.addEventListener("open", () => (this.isLive = true));
    source.addEventListener("entry", () => this.soon());
    source.addEventListener("end", () => {
      this.close();
      void this.refresh();
    });
    source.addEventListener("problem", () => this.close());
    source.addEventListener("error", () => {
      this.isLive = false;
      if (source.readyState === EventSource.CLOSED) this.source = undefined;
    });
  }

  private close(): void {
    this.source?.close();
    this.source = undefined;
    this.isLive = false;
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    clearTimeout(this.wanted);
    this.close();
  }
}
