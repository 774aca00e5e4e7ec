/** Answers from the scheduler's own plan: why a job waits, or has as many slots as it has. */

import { queryOptions } from "@tanstack/react-query";

import { answer, client } from "./client";
import { keys } from "./keys";
import type { Job } from "./types";

/** An answer plans many times, so it is asked for again this often, and at once only when the job's own numbers change. */
const AGAIN_MS = 15_000;

export function explanationQuery(job: Job) {
  const { state, slots, waiting, min_workers, max_workers, priority, engines } = job;
  const about = [state, slots, waiting?.blocking, waiting?.reason, min_workers, max_workers, priority, engines];
  return queryOptions({
    queryKey: keys.explanation(job.id, JSON.stringify(about)),
    queryFn: ({ signal }) =>
      answer(client.GET("/api/v1/jobs/{exec_id}/explanation", { params: { path: { exec_id: job.id } }, signal })),
    refetchInterval: AGAIN_MS,
    placeholderData: (before) => (before?.job === job.id ? before : undefined),
  });
}
