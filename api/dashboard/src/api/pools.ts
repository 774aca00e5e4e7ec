/** The pools: nodes that Kubernetes or Slurm give and take. */

import { queryOptions } from "@tanstack/react-query";

import { answer, client } from "./client";
import { keys } from "./keys";

/** The stream does not carry pools; this is how often they are asked for. */
const AGAIN_MS = 5_000;

export const poolsQuery = queryOptions({
  queryKey: keys.pools,
  queryFn: ({ signal }) => answer(client.GET("/api/v1/pools", { signal })),
  refetchInterval: AGAIN_MS,
});
