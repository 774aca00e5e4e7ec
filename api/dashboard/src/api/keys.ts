/** Names of everything in the query cache. What stands under "live" the stream keeps fresh. */

/** What the Jobs page asks for; empty strings ask for everything. */
export interface JobFilter {
  readonly states: readonly string[];
  readonly owner: string;
  readonly text: string;
}

export const EVERY_JOB: JobFilter = { states: [], owner: "", text: "" };

export const keys = {
  me: ["me"] as const,
  frameworks: ["frameworks"] as const,
  /** Everything that the stream patches or outdates. */
  live: ["live"] as const,
  jobLists: ["live", "jobs"] as const,
  jobs: (filter: JobFilter) => ["live", "jobs", filter] as const,
  job: (id: string) => ["live", "job", id] as const,
  /** Prefix of all that hangs on a job: its history, its resizes, its metrics. */
  jobRelated: (id: string) => ["live", "job-lists", id] as const,
  jobList: (id: string, part: "events" | "resizes" | "allocations" | "ranks" | "metrics" | "step-times" | "logs") =>
    ["live", "job-lists", id, part] as const,
  /** Why a job waits, or has so many slots; `of` is what it was asked about, so that it is asked anew when that changes. */
  explanation: (id: string, of: string) => ["live", "explanation", id, of] as const,
  nodes: ["live", "nodes"] as const,
  queues: ["live", "queues"] as const,
  pools: ["live", "pools"] as const,
  nodeUsage: (name: string, seconds: number) => ["live", "node-usage", name, seconds] as const,
  timeline: (range: string) => ["live", "timeline", range] as const,
};
