// Times, durations and sizes as people read them.

const UNITS: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "m"],
  [1_000, "s"],
];

/** `2h 14m`, `3.2s`, `80ms`: two units at most. */
export function duration(ms: number): string {
  const sign = ms < 0 ? "-" : "";
  let rest = Math.abs(ms);
  if (rest < 1) return "0ms";
  if (rest < 1_000) return `${sign}${Math.round(rest)}ms`;
  if (rest < 60_000) return `${sign}${(Math.floor(rest / 100) / 10).toFixed(rest < 10_000 ? 1 : 0)}s`;
  const parts: string[] = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count) parts.push(`${count}${unit}`);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return sign + parts.join(" ");
}

export const ms = (iso: string | null | undefined): number | null => (iso ? Date.parse(iso) : null);

const two = (n: number): string => String(n).padStart(2, "0");

/** Local date and time to the second. */
export function instant(at: number): string {
  const d = new Date(at);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(at)}`;
}

export function clock(at: number, millis = false): string {
  const d = new Date(at);
  const text = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return millis ? `${text}.${String(d.getMilliseconds()).padStart(3, "0")}` : text;
}

/** The time alone today, the date else. */
export function shortTime(at: number, now: number): string {
  const d = new Date(at);
  if (now - at < 86_400_000 && new Date(now).getDate() === d.getDate()) return clock(at);
  return `${d.toLocaleString("en", { month: "short" })} ${d.getDate()}, ${two(d.getHours())}:${two(d.getMinutes())}`;
}

export function bytes(n: number): string {
  if (n < 1_000) return `${n} B`;
  if (n < 1_000_000) return `${(n / 1_000).toFixed(n < 10_000 ? 1 : 0)} kB`;
  return `${(n / 1_000_000).toFixed(1)} MB`;
}

export const count = (n: number): string => n.toLocaleString("en");
export const atLeast = (c: { runs: number; is_complete: boolean } | undefined): string => (c ? `${count(c.runs)}${c.is_complete ? "" : "+"}` : "");
export const plural = (n: number, one: string, many = `${one}s`): string => `${count(n)} ${n === 1 ? one : many}`;

/** The end of an id: the part that differs between runs of one day. */
export const shortId = (id: string): string => (id.length > 14 ? `${id.slice(0, 2)}…${id.slice(-8)}` : id);

/** One line of JSON, cut. */
export function oneLine(value: unknown, most = 160): string {
  if (value === undefined) return "";
  const text = JSON.stringify(value) ?? String(value);
  return text.length > most ? `${text.slice(0, most)}…` : text;
}
