/** The framework catalogue: what a job may name as its framework. */

import { queryOptions } from "@tanstack/react-query";

import { answer, client } from "./client";
import { keys } from "./keys";
import type { Framework } from "./types";

export const frameworksQuery = queryOptions({
  queryKey: keys.frameworks,
  staleTime: 60_000,
  queryFn: async ({ signal }): Promise<readonly Framework[]> =>
    (await answer(client.GET("/api/v1/frameworks", { signal }))).frameworks,
});
