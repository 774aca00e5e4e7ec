/** Nodes and what an admin does with them. Room: dashboard, api. */

import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";

import { answer, client } from "./client";
import { keys } from "./keys";
import { patchNodes } from "./stream/patch";
import type { Node } from "./types";

export const nodesQuery = queryOptions({
  queryKey: keys.nodes,
  queryFn: ({ signal }): Promise<readonly Node[]> => answer(client.GET("/api/v1/nodes", { signal })),
});

export type NodeVerb = "cordon" | "uncordon" | "drain";

/** Cordon, uncordon or drain. Admins only. */
export function useNodeVerb() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ name, verb }: { name: string; verb: NodeVerb }): Promise<Node> =>
      answer(client.POST(`/api/v1/nodes/{name}/${verb}`, { params: { path: { name } } })),
    onSuccess: (node) => queries.setQueryData<readonly Node[]>(keys.nodes, (before) => before && patchNodes(before, [node])),
  });
}
