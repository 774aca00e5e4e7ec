/** Nodes and what an admin does with them. */

import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";

import { answer, client } from "./client";
import { keys } from "./keys";
import { at, everyPage } from "./pages";
import { patchNodes } from "./stream/patch";
import type { Node } from "./types";

export const nodesQuery = queryOptions({
  queryKey: keys.nodes,
  queryFn: async ({ signal }): Promise<readonly Node[]> => {
    const nodes = await everyPage((cursor) =>
      answer(client.GET("/api/v1/nodes", { params: { query: at(cursor) }, signal })),
    );
    return nodes.items;
  },
});

export type NodeVerb = "cordon" | "uncordon" | "drain" | "remove";

/** Cordon, uncordon, drain, or take a lost node from the list. Admins only. */
export function useNodeVerb() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: async ({ name, verb }: { name: string; verb: NodeVerb }): Promise<Node | null> => {
      const params = { path: { name } };
      if (verb !== "remove") return answer(client.POST(`/api/v1/nodes/{name}/${verb}`, { params }));
      await answer(client.DELETE("/api/v1/nodes/{name}", { params }));
      return null;
    },
    onSuccess: (node, { name }) =>
      queries.setQueryData<readonly Node[]>(
        keys.nodes,
        (before) => before && (node ? patchNodes(before, [node]) : patchNodes(before, [], [name])),
      ),
  });
}
