// The filters of lists of runs: in the address of the page, and as the server takes them.

import type { Query } from "./api";

export const FILTERS = ["status", "program", "version", "scope", "key_prefix", "tag", "created", "created_from", "created_to", "closed_from", "closed_to", "waiting_for", "error", "parent", "chain", "forked_from", "text", "where"] as const;
export type FilterName = (typeof FILTERS)[number];

export const LABELS: Record<FilterName, string> = {
  status: "state",
  program: "program",
  version: "version",
  scope: "scope",
  key_prefix: "key",
  tag: "tag",
  created: "created within",
  created_from: "created from",
  created_to: "created to",
  closed_from: "closed from",
  closed_to: "closed to",
  waiting_for: "waits for",
  error: "error",
  parent: "parent",
  chain: "chain of",
  forked_from: "forks of",
  text: "find",
  where: "where",
};

const SPANS: Record<string, number> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The time that `24h` before `now` names. */
export function before(span: string, now: number): string | null {
  const found = /^(\d{1,6})([mhd])$/.exec(span);
  return found ? new Date(now - Number(found[1]) * SPANS[found[2]]).toISOString() : null;
}

/** What the server takes: `tag=customer=acme` becomes `tag.customer=acme`, `created=24h` a time. */
export function serverQuery(query: URLSearchParams, now: number): Query {
  const wanted: Query = {};
  for (const name of FILTERS) {
    const value = query.get(name);
    if (!value) continue;
    if (name === "tag") {
      for (const each of value.split(",")) {
        const [tag, ...rest] = each.split("=");
        if (tag && rest.length) wanted[`tag.${tag}`] = rest.join("=");
      }
    } else if (name === "created") {
      const from = before(value, now);
      if (from) wanted.created_from = from;
    } else {
      wanted[name] = value;
    }
  }
  return wanted;
}

/** The same as the `filters` of a bulk act: states as a list, tags as an object. */
export function bulkFilters(query: URLSearchParams, now: number): Record<string, unknown> {
  const given: Record<string, unknown> = {};
  const tags: Record<string, string> = {};
  for (const [name, value] of Object.entries(serverQuery(query, now))) {
    if (name.startsWith("tag.")) tags[name.slice(4)] = String(value);
    else if (name === "status") given.status = String(value).split(",");
    else given[name] = value;
  }
  if (Object.keys(tags).length) given.tags = tags;
  return given;
}

export const isFiltered = (query: URLSearchParams): boolean => FILTERS.some((name) => query.get(name));
