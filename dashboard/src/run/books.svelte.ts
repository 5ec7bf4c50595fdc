// Both books of one run, and what each account held at any entry that is loaded.

import { get, problemText, runPath } from "../lib/api";
import type { Account, Field, JournalEntry, LedgerPage } from "../lib/types";

const WHOLE = 4_000;
const TAIL = 1_000;
const PAGE = 1_000;
const MANY_ACCOUNTS = 500;
const SLOW_MS = 10_000;
export const STEP_WIDTHS = [1, 2, 1, 3, 8];
export const MESSAGE_WIDTHS = [3, 1, 1, 1, 1, 8];

interface HistoryPage {
  events: JournalEntry[];
  next: number | null;
  entries: number;
}

export const keyOf = (run: string, account: string): string => `${run} ${account}`;
export const digitsOf = (balance: number): string => String(balance).padStart(15, "0");
export const widthsOf = (account: string): number[] => (account.startsWith("message:") ? MESSAGE_WIDTHS : STEP_WIDTHS);

export class Books {
  /** Entries without a gap, up to the last one that the ledger includes. */
  entries = $state.raw<JournalEntry[]>([]);
  ledger = $state.raw<LedgerPage>();
  problem = $state("");
  isLoading = $state(true);
  accounts = $state.raw<Map<string, Account>>(new Map());
  private posted = new Map<string, { offsets: number[]; sums: number[] }>();
  private semaphores: number[] = [];
  private isBusy = false;
  private isAskedAgain = false;
  private readAt = 0;

  constructor(private readonly run: string) {}

  get first(): number {
    return this.entries[0]?.offset ?? 0;
  }

  async update(): Promise<void> {
    if (this.isBusy) {
      this.isAskedAgain = true;
      return;
    }
    this.isBusy = true;
    try {
      const wait = this.accounts.size > MANY_ACCOUNTS ? this.readAt + SLOW_MS - Date.now() : 0;
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
      const ledger = await get<LedgerPage>(runPath(this.run, "/ledger"));
      this.readAt = Date.now();
      let next = this.entries.at(-1)?.offset;
      next = next === undefined ? (ledger.entries > WHOLE ? ledger.entries - TAIL : 0) : next + 1;
      const fresh: JournalEntry[] = [];
      while (next < ledger.entries) {
        const page = await this.page(next, Math.min(PAGE, ledger.entries - next));
        fresh.push(...page);
        if (!page.length) break;
        next = page[page.length - 1].offset + 1;
      }
      this.accounts = new Map(ledger.accounts.map((account) => [keyOf(account.run_id, account.account), account]));
      this.ledger = ledger;
      if (fresh.length) this.set([...this.entries, ...fresh.filter((entry) => entry.offset < ledger.entries)]);
      this.problem = "";
    } catch (error) {
      this.problem = problemText(error);
    } finally {
      this.isBusy = false;
      this.isLoading = false;
      if (this.isAskedAgain) {
        this.isAskedAgain = false;
        void this.update();
      }
    }
  }

  async earlier(until = Math.max(0, this.first - PAGE)): Promise<void> {
    if (this.isBusy || this.first === 0) return;
    this.isBusy = true;
    try {
      const before: JournalEntry[] = [];
      for (let from = until; from < this.first; ) {
        const page = await this.page(from, Math.min(PAGE, this.first - from));
        if (!page.length) break;
        before.push(...page);
        from = page[page.length - 1].offset + 1;
      }
      this.set([...before, ...this.entries]);
    } catch (error) {
      this.problem = problemText(error);
    } finally {
      this.isBusy = false;
    }
  }

  private async page(first: number, limit: number): Promise<JournalEntry[]> {
    return (await get<HistoryPage>(runPath(this.run, "/history"), { first, limit, data: false })).events;
  }

  private set(entries: JournalEntry[]): void {
    const posted = new Map<string, { offsets: number[]; sums: number[] }>();
    let semaphore = 0;
    const semaphores: number[] = [];
    let run = entries[0]?.run_id;
    for (const entry of entries) {
      for (const posting of entry.postings ?? []) {
        const key = keyOf(entry.run_id, posting.account);
        const column = posted.get(key) ?? { offsets: [], sums: [0] };
        column.offsets.push(entry.offset);
        column.sums.push(column.sums[column.sums.length - 1] + Number(posting.value));
        posted.set(key, column);
      }
      if (entry.run_id !== run) {
        run = entry.run_id;
        semaphore = 0; // each run of a chain has its own
      }
      semaphore += entry.semaphore ?? 0;
      semaphores.push(semaphore);
    }
    this.posted = posted;
    this.semaphores = semaphores;
    this.entries = entries;
  }

  /** What the account held after the entry at `offset`: its balance now, less what was posted later. */
  balanceAt(key: string, offset: number): number {
    const now = Number(this.accounts.get(key)?.balance ?? 0);
    const column = this.posted.get(key);
    if (!column) return now;
    return now - (column.sums[column.sums.length - 1] - column.sums[countUpTo(column.offsets, offset)]);
  }

  semaphoreAt(offset: number): number | null {
    const index = offset - this.first;
    const entry = this.entries[index];
    if (!entry) return null;
    if (this.first === 0 || entry.run_id !== this.entries.at(-1)?.run_id) return this.semaphores[index];
    const later = this.semaphores[this.semaphores.length - 1] - this.semaphores[index];
    return (this.ledger?.trial_balance.semaphore ?? 0) - later;
  }

  entriesOf(key: string): number[] {
    return this.posted.get(key)?.offsets ?? [];
  }
}

function countUpTo(offsets: number[], offset: number): number {
  let low = 0;
  let high = offsets.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (offsets[middle] <= offset) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Fields with the digits that they have in `digits`. */
export function fieldsIn(fields: Field[] | undefined, digits: string): { name: string; value: number; meaning: string; from: number; width: number }[] {
  let from = 0;
  return (fields ?? []).map((field) => {
    const width = field.digits.length;
    const found = { name: field.name, value: Number(digits.slice(from, from + width)), meaning: field.meaning, from, width };
    from += width;
    return found;
  });
}
