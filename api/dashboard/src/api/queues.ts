/** The tree of queues, and what an admin does with it. */

import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";

import { answer, client } from "./client";
import { keys } from "./keys";
import type { QueueSettings } from "./types";

/** The stream does not carry queues; this is how often they are asked for. */
const AGAIN_MS = 10_000;

export const queuesQuery = queryOptions({
  queryKey: keys.queues,
  queryFn: ({ signal }) => answer(client.GET("/api/v1/queues", { signal })),
  refetchInterval: AGAIN_MS,
});

/** Make a queue, or change one. The answer says what holds now. Admins only. */
export function usePutQueue() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ path, settings }: { readonly path: string; readonly settings: QueueSettings }) =>
      answer(client.PUT("/api/v1/queues/{path}", { params: { path: { path: inAddress(path) } }, body: settings })),
    onSettled: () => queries.invalidateQueries({ queryKey: keys.live }),
  });
}

/** Remove a queue; the root gets its first settings back. Admins only. */
export function useRemoveQueue() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (path: string) =>
      answer(client.DELETE("/api/v1/queues/{path}", { params: { path: { path: inAddress(path) } } })),
    onSettled: () => queries.invalidateQueries({ queryKey: keys.live }),
  });
}

/** A queue's path as the last part of an address; the root's is empty. */
function inAddress(path: string): string {
  return path.replace(/^\/+/, "");
}
