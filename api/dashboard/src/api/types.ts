/** The wire's shapes under short names. What they hold is said in schema.d.ts, made by `npm run types`. */

import type { components } from "./schema";

type Schemas = components["schemas"];

/** Every part of a job's progress may be missing: it is empty at first. */
export type Job = Omit<Schemas["Job"], "progress"> & { readonly progress: Partial<Schemas["Progress"]> };
export type JobState = Schemas["ExecState"];
export type Resize = Schemas["Resize"];
export type Rank = Schemas["Rank"];
export type Event = Schemas["Event"];
export type Allocation = Schemas["Allocation"];
export type Metrics = Schemas["Metrics"];
export type StepTimes = Schemas["StepTimes"];
export type EngineTimes = Schemas["EngineTimes"];
export type MeanTimes = Schemas["MeanTimes"];
export type LogFile = Schemas["LogFile"];
export type Node = Schemas["Node"];
export type Slot = Schemas["Slot"];
export type NodeUsage = Schemas["NodeUsage"];
export type Timeline = Schemas["Timeline"];
export type Framework = Schemas["CatalogueEntry"];
export type Exec = Schemas["Exec"];
export type Explained = Schemas["Explained"];
export type Suggestion = Schemas["Suggestion"];
export type Queue = Schemas["Queue"];
export type Queues = Schemas["Queues"];
export type Pool = Schemas["Pool"];
export type Pools = Schemas["Pools"];
export type AskedNode = Schemas["AskedNode"];
export type QueueUser = Schemas["QueueUser"];
export type QueueWaiting = Schemas["QueueWaiting"];
export type QueuePolicy = Schemas["QueuePolicy"];
export type QueueSettings = Schemas["QueueSettings"];
export type JobChange = Schemas["JobChange"];
export type Me = Schemas["Me"];

/** One page of a list. */
export interface Page<T> {
  readonly items: readonly T[];
  /** Where the next page begins; null: this was the last. */
  readonly next?: string | null;
}

/** A page of jobs also says how many there are. */
export interface JobPage extends Page<Job> {
  readonly total: number;
}

/** The six states, in the order in which a job passes through them. */
export const JOB_STATES: readonly JobState[] = [
  "SUBMITTED",
  "PENDING_CRD_SCHEDULER",
  "RUNNING",
  "FINISHED",
  "KILLED",
  "ERROR",
];

const OVER: ReadonlySet<JobState> = new Set<JobState>(["FINISHED", "KILLED", "ERROR"]);

/** Nothing of the job runs any more, nor ever will. */
export function isOver(state: JobState): boolean {
  return OVER.has(state);
}

/** The number in `edt-7`; jobs are ordered by it. */
export function jobNumber(id: string): number {
  return Number(id.slice(id.lastIndexOf("-") + 1));
}
