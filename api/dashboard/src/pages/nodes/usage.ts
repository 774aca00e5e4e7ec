/** How busy a node was, fetched and renewed. */

import { queryOptions } from "@tanstack/react-query";

import { answer, client } from "../../api/client";
import { keys } from "../../api/keys";
import type { NodeUsage } from "../../api/types";
import { usageSeries } from "./occupancy";

export function usageQuery(name: string, seconds: number, points: number) {
  return queryOptions({
    queryKey: [...keys.nodeUsage(name, seconds), points],
    queryFn: ({ signal }): Promise<NodeUsage> =>
      answer(client.GET("/api/v1/nodes/{name}/usage", {
        params: { path: { name }, query: { since: Date.now() / 1000 - seconds, points } }, signal,
      })),
    select: usageSeries,
    refetchInterval: Math.max(15_000, (seconds / points) * 1000),
  });
}
