/** The query cache and its manners. */

import { QueryClient } from "@tanstack/react-query";

import { onSessionEnd } from "../api/client";
import { keys } from "../api/keys";
import { asProblem } from "../api/problem";

export function makeQueries(): QueryClient {
  const queries = new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: 30_000, // the stream keeps what is shown fresh
        retry: (count, error) => asProblem(error).passing && count < 2,
        retryDelay: (count) => Math.min(500 * 2 ** count, 4_000),
        refetchOnWindowFocus: false,
        networkMode: "always",
      },
      mutations: { networkMode: "always" },
    },
  });
  onSessionEnd(() => queries.setQueryData(keys.me, null));
  return queries;
}
