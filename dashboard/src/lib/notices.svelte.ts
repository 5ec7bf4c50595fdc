// Short messages at the edge of the page, read out by screen readers.

export interface Notice {
  id: number;
  text: string;
  isBad: boolean;
}

class Notices {
  list = $state<Notice[]>([]);
  private last = 0;

  say(text: string, isBad = false): void {
    const id = ++this.last;
    this.list = [...this.list.slice(-3), { id, text, isBad }];
    setTimeout(() => this.close(id), isBad ? 12_000 : 5_000);
  }

  close(id: number): void {
    this.list = this.list.filter((each) => each.id !== id);
  }
}

export const notices = new Notices();
