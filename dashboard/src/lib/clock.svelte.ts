// One clock for all ages on the page. It stands still while the page is hidden.

class Clock {
  now = $state(Date.now());
  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now();
    }, 1_000);
    document.addEventListener("visibilitychange", () => (this.now = Date.now()));
  }
}

export const wall = new Clock();
