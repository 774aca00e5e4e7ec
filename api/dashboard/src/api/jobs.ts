/** Jobs: lists, one, its parts, and what may be done with it. */

import { infiniteQueryOptions, queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";

import { answer, client } from "./client";
import { type JobFilter, keys } from "./keys";
import { at, everyPage } from "./pages";
import type { Job, JobChange, JobPage, LogFile } from "./types";

const PAGE = 100;
/** So many pages of a job's history are shown; a list says where it was cut. */
const MOST_PAGES = 20;

/** A list of jobs, newest first, page by page. */
export function jobsQuery(filter: JobFilter) {
  return infiniteQueryOptions({
    queryKey: keys.jobs(filter),
    initialPageParam: null as string | null,
    queryFn: ({ pageParam, signal }): Promise<JobPage> =>
      answer(client.GET("/api/v1/jobs", { params: { query: jobsQueryString(filter, pageParam) }, signal })),
    getNextPageParam: (last: JobPage) => last.next ?? null,
  });
}

function jobsQueryString(filter: JobFilter, cursor: string | null) {
  return {
    limit: PAGE,
    ...(cursor !== null && { cursor }),
    ...(filter.states.length > 0 && { state: filter.states.join(",") }),
    ...(filter.owner !== "" && { owner: filter.owner }),
    ...(filter.text !== "" && { q: filter.text }),
  };
}

export function jobQuery(id: string) {
  return queryOptions({
    queryKey: keys.job(id),
    queryFn: ({ signal }) => answer(client.GET("/api/v1/jobs/{exec_id}", { params: { path: { exec_id: id } }, signal })),
  });
}

/** A job's whole history, oldest first. */
export function eventsQuery(id: string) {
  return queryOptions({
    queryKey: keys.jobList(id, "events"),
    queryFn: ({ signal }) =>
      everyPage(
        (cursor) => answer(client.GET("/api/v1/jobs/{exec_id}/events", { params: part(id, cursor), signal })),
        MOST_PAGES,
      ),
  });
}

/** Each change of a job's size, oldest first. */
export function resizesQuery(id: string) {
  return queryOptions({
    queryKey: keys.jobList(id, "resizes"),
    queryFn: ({ signal }) =>
      everyPage(
        (cursor) => answer(client.GET("/api/v1/jobs/{exec_id}/resizes", { params: part(id, cursor), signal })),
        MOST_PAGES,
      ),
  });
}

/** Which slots it held, and when. */
export function allocationsQuery(id: string) {
  return queryOptions({
    queryKey: keys.jobList(id, "allocations"),
    queryFn: ({ signal }) =>
      everyPage(
        (cursor) => answer(client.GET("/api/v1/jobs/{exec_id}/allocations", { params: part(id, cursor), signal })),
        MOST_PAGES,
      ),
  });
}

/** The processes of a gang, by rank. */
export function ranksQuery(id: string) {
  return queryOptions({
    queryKey: keys.jobList(id, "ranks"),
    queryFn: ({ signal }) =>
      everyPage(
        (cursor) => answer(client.GET("/api/v1/jobs/{exec_id}/ranks", { params: part(id, cursor), signal })),
        MOST_PAGES,
      ),
  });
}

/** Loss, workers, throughput over steps and time, as columns. */
export function metricsQuery(id: string, points = 600) {
  return queryOptions({
    queryKey: keys.jobList(id, "metrics"),
    queryFn: ({ signal }) =>
      answer(
        client.GET("/api/v1/jobs/{exec_id}/metrics", { params: { path: { exec_id: id }, query: { points } }, signal }),
      ),
  });
}

/** Where the time of its steps goes, engine by engine. */
export function stepTimesQuery(id: string) {
  return queryOptions({
    queryKey: keys.jobList(id, "step-times"),
    queryFn: ({ signal }) =>
      answer(client.GET("/api/v1/jobs/{exec_id}/step-times", { params: { path: { exec_id: id } }, signal })),
  });
}

/** The files of its log. */
export function logFilesQuery(id: string) {
  return queryOptions({
    queryKey: keys.jobList(id, "logs"),
    queryFn: async ({ signal }): Promise<readonly LogFile[]> => {
      const files = await everyPage((cursor) =>
        answer(client.GET("/api/v1/jobs/{exec_id}/logs", { params: part(id, cursor), signal })),
      );
      return files.items;
    },
  });
}

function part(id: string, cursor: string | null) {
  return { path: { exec_id: id }, query: at(cursor) };
}

const EXEC = "/platform/rest/deeplearning/v1/execs/{exec_id}";

/** Ask for a job's end. */
export function useStopJob() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (id: string) => answer(client.POST(`${EXEC}/stop`, { params: { path: { exec_id: id } } })),
    onSettled: () => queries.invalidateQueries({ queryKey: keys.live }),
  });
}

/** Pause a job, or let it go on. The answer says what happens now. */
export function usePauseJob() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ id, verb }: { readonly id: string; readonly verb: "pause" | "resume" }) =>
      answer(client.POST(`/api/v1/jobs/{exec_id}/${verb}`, { params: { path: { exec_id: id } } })),
    onSettled: () => queries.invalidateQueries({ queryKey: keys.live }),
  });
}

/** Give a job other least or most workers, or another priority. What is left out stays. The answer says what holds now. */
export function useChangeJob() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ id, change }: { readonly id: string; readonly change: JobChange }) =>
      answer(client.PATCH("/api/v1/jobs/{exec_id}", { params: { path: { exec_id: id } }, body: change })),
    onSettled: () => queries.invalidateQueries({ queryKey: keys.live }),
  });
}

/** Give a job another number of epochs in all. The answer has the job that goes on: a new one, if this one is over. */
export function useExtendJob() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: ({ id, epochs }: { readonly id: string; readonly epochs: number }) =>
      answer(client.POST("/api/v1/jobs/{exec_id}/extend", { params: { path: { exec_id: id } }, body: { epochs, environ: {} } })),
    onSettled: () => queries.invalidateQueries({ queryKey: keys.live }),
  });
}

/** Remove a job with its logs and results. */
export function useRemoveJob() {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (id: string) => answer(client.DELETE(EXEC, { params: { path: { exec_id: id } } })),
    onSuccess: (_, id) => {
      queries.removeQueries({ queryKey: keys.job(id) });
      return queries.invalidateQueries({ queryKey: keys.jobLists });
    },
  });
}

/** Whether a job has a result, and how large it is; else why there is none. Asked again as the job moves on. */
export function resultQuery(job: Pick<Job, "id" | "state" | "attempts">) {
  return queryOptions({
    queryKey: ["result", job.id, job.state, job.attempts] as const,
    enabled: job.attempts > 0,
    queryFn: ({ signal }) =>
      answer(client.GET("/api/v1/jobs/{exec_id}/result", { params: { path: { exec_id: job.id } }, signal })),
  });
}

/** Have the browser save a job's result. */
export function downloadResult(id: string): void {
  const link = document.createElement("a");
  link.href = resultUrl(id);
  link.download = "";
  link.click();
}

function resultUrl(id: string): string {
  return `/platform/rest/deeplearning/v1/execs/${encodeURIComponent(id)}/result`;
}
