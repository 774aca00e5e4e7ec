/**
 * The typed client: every call of the dashboard goes through it.
 *
 * `await answer(client.GET("/api/v1/jobs/{exec_id}", { params: … }))` gives the body or throws a Problem.
 * The browser's session cookie goes along by itself; a 401 tells whoever listens that the session has ended.
 */

import createClient from "openapi-fetch";

import { Problem, problemOf } from "./problem";
import type { paths } from "./schema";

export const client = createClient<paths>({ baseUrl: "", headers: { Accept: "application/json" } });

const listeners = new Set<() => void>();

/** Hear when an answer says that nobody is logged in; gives the way to stop. */
export function onSessionEnd(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

interface Answer<T> {
  readonly data?: T;
  readonly error?: unknown;
  readonly response: Response;
}

/** The body of an answer. Throws the Problem that it tells instead. */
export async function answer<T>(call: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await call;
  if (response.ok) return data as T;
  throw refused(response.status, error);
}

/** For calls that are not JSON: the answer itself, or the Problem that it tells. */
export async function ask(url: string, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, init);
  if (response.ok) return response;
  const text = await response.text();
  let body: unknown = text;
  try {
    body = JSON.parse(text);
  } catch {
    // plain text, as WMLA's routes answer
  }
  throw refused(response.status, body);
}

function refused(status: number, body: unknown): Problem {
  if (status === 401) for (const listener of listeners) listener();
  return problemOf(status, body);
}
