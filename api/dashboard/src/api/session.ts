/** Who is logged in, logging in and out. */

import { type QueryClient, queryOptions, useQuery } from "@tanstack/react-query";

import { answer, client } from "./client";
import { keys } from "./keys";
import { Problem } from "./problem";
import type { Me } from "./types";

/** The person at the keyboard; null: nobody is logged in. */
export const meQuery = queryOptions({
  queryKey: keys.me,
  staleTime: Infinity,
  queryFn: async (): Promise<Me | null> => {
    try {
      return await answer(client.GET("/api/v1/me"));
    } catch (error) {
      if (error instanceof Problem && error.status === 401) return null;
      throw error;
    }
  },
});

/** The person logged in. For pages behind RequireSession, where there is one. */
export function useMe(): Me {
  const { data } = useQuery(meQuery);
  if (!data) throw new Error("useMe stands outside of RequireSession");
  return data;
}

export function useIsAdmin(): boolean {
  return useMe().role === "admin";
}

/** Whether they read the jobs of all users: admins and viewers. */
export function useSeesAll(): boolean {
  return useMe().role !== "user";
}

/** Whether they change anything, for example submit a job: viewers do not. */
export function useMayChange(): boolean {
  return useMe().role !== "viewer";
}

export async function logIn(queries: QueryClient, name: string, password: string): Promise<void> {
  await answer(client.POST("/api/v1/session", { body: { name, password } }));
  forget(queries);
  await queries.fetchQuery({ ...meQuery, staleTime: 0 });
}

export async function logOut(queries: QueryClient): Promise<void> {
  await answer(client.DELETE("/api/v1/session"));
  queries.setQueryData(keys.me, null); // whoever shows a page hears of it, and leaves
  forget(queries);
}

/** Nothing that another person saw stays. */
function forget(queries: QueryClient): void {
  queries.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== keys.me[0] });
}

/** A path of this site to go to after logging in; anything else is the front page. */
export function returnPath(next: string | null): string {
  return next !== null && /^\/(?![/\\])/.test(next) && !next.startsWith("/login") ? next : "/jobs";
}
