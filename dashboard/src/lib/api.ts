// Requests to the HTTP API beside the page: the path of the page decides the prefix.

const BASE = new URL("./", document.baseURI.replace(/#.*$/, ""));

/** An answer that is not a success: `problem+json`, or what can be said without one. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly code = "",
    readonly remedy = "",
    readonly command = "",
  ) {
    super(detail || title);
  }
}

export type Query = Record<string, string | number | boolean | string[] | null | undefined>;

/** The address of a route such as `/v1/runs`, below whatever prefix the page was loaded from. */
export function address(path: string, query: Query = {}): string {
  const url = new URL(path.replace(/^\//, ""), BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) url.searchParams.append(name, String(each));
  }
  return url.href;
}

async function problemOf(response: Response): Promise<Problem> {
  try {
    const body = await response.json();
    return new Problem(response.status, body.title ?? "", body.detail ?? "", body.code ?? "", body.remedy ?? "", body.command ?? "");
  } catch {
    return new Problem(response.status, `${response.status} ${response.statusText}`, "the server gave no reason");
  }
}

async function request(method: string, path: string, query: Query, body: unknown, headers: Record<string, string>, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(address(path, query), {
      method,
      signal,
      credentials: "same-origin",
      headers: { Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "No connection", "the server does not answer; the page tries again");
  }
  if (response.status === 401) window.dispatchEvent(new CustomEvent("perdure:unauthorized"));
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await request("GET", path, query, undefined, {}, signal)).json();
}

export async function send<T>(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  const response = await request(method, path, {}, method === "GET" ? undefined : (body ?? {}), headers);
  return response.status === 204 ? (undefined as T) : response.json();
}

export function post<T>(path: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<T> {
  return send<T>("POST", path, body, headers);
}

export const runPath = (run: string, rest = ""): string => `/v1/runs/${encodeURIComponent(run)}${rest}`;
export const stepPath = (run: string, step: string, rest = ""): string => runPath(run, `/steps/${encodeURIComponent(step)}${rest}`);

export function problemText(error: unknown): string {
  if (error instanceof Problem) return [error.detail || error.title, error.remedy].filter(Boolean).join(". ");
  return error instanceof Error ? error.message : String(error);
}
