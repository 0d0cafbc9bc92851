/** Who is logged in: a cookie that scripts cannot see, of which the hub tells whose it is. */

/** Whose session it is. */
export interface Session {
  identity: string;
  agent_id: string;
  role: "viewer" | "operator";
}

/** What became of a question about the session. */
export type Asked<T> = { is: "ok"; value: T } | { is: "none" } | { is: "failed"; why: string };

async function why(response: Response): Promise<string> {
  try {
    const problem = (await response.json()) as { detail?: string; title?: string };
    return problem.detail ?? problem.title ?? `HTTP ${response.status}`;
  } catch {
    return `HTTP ${response.status}`;
  }
}

async function ask<T>(request: RequestInit, read: (response: Response) => Promise<T>): Promise<Asked<T>> {
  try {
    const response = await fetch("/v1/session", { ...request, credentials: "same-origin", cache: "no-store" });
    if (response.ok) return { is: "ok", value: await read(response) };
    if (response.status === 401) return { is: "none" };
    return { is: "failed", why: await why(response) };
  } catch {
    return { is: "failed", why: "the hub cannot be reached" };
  }
}

/** Whose session this page has; none: nobody's. */
export function current(): Promise<Asked<Session>> {
  return ask({ headers: { accept: "application/json" } }, (response) => response.json() as Promise<Session>);
}

/** Logs in; none: the token is not one of the hub's. */
export function login(token: string): Promise<Asked<undefined>> {
  const headers = { "content-type": "application/json" };
  return ask({ method: "POST", headers, body: JSON.stringify({ token }) }, () => Promise.resolve(undefined));
}

/** Logs out. */
export function logout(): Promise<Asked<undefined>> {
  return ask({ method: "DELETE" }, () => Promise.resolve(undefined));
}
