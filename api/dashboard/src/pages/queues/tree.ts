/** The tree of queues as rows, and what lies below one of them. Pure. */

import type { Queue, QueueUser, QueueWaiting } from "../../api/types";
import { number } from "../../components/format";

export interface TreeRow {
  readonly queue: Queue;
  /** Whether queues below it are shown; null: there are none. */
  readonly open: boolean | null;
}

/**
 * The rows to show, each queue before those below it. With `words` only queues whose path has them, and those above
 * these; without, all but those below a closed one.
 */
export function treeRows(queues: readonly Queue[], closed: ReadonlySet<string>, words: string): readonly TreeRow[] {
  const parents = new Set(queues.map((queue) => queue.parent));
  const found = queues.filter(({ path }) => path.toLowerCase().includes(words.toLowerCase())).map(({ path }) => path);
  const wanted = new Set(found.flatMap(lineage));
  const hidden = new Set<string>();
  const rows: TreeRow[] = [];
  for (const queue of queues) {
    if (words !== "" ? !wanted.has(queue.path) : queue.parent !== null && hidden.has(queue.parent)) {
      hidden.add(queue.path);
      continue;
    }
    const shut = words === "" && closed.has(queue.path);
    if (shut) hidden.add(queue.path);
    rows.push({ queue, open: parents.has(queue.path) ? !shut : null });
  }
  return rows;
}

/** A path and those above it, the root last: "/a/b", "/a", "". */
function lineage(path: string): readonly string[] {
  const found = [path];
  for (let at = path; at !== ""; found.push(at)) at = at.slice(0, at.lastIndexOf("/"));
  return found;
}

/** The path of the queue to which jobs of a path belong: its own, or the nearest one above it that is there. */
export function nearest(queues: readonly Queue[], path: string): string {
  return lineage(path).find((each) => queues.some((queue) => queue.path === each)) ?? "";
}

/** A queue and all below it. */
export function below(queues: readonly Queue[], top: string): readonly Queue[] {
  return queues.filter(({ path }) => path === top || path.startsWith(`${top}/`));
}

export interface UserRow extends QueueUser {
  readonly queue: string;
}

/** Users with jobs or usage in these queues, those who hold most first; `others`: how many are not named. */
export function usersOf(queues: readonly Queue[]): { readonly users: readonly UserRow[]; readonly others: number } {
  const users = queues.flatMap((queue) => queue.users.map((user) => ({ ...user, queue: queue.path })));
  users.sort((one, other) => other.held - one.held || other.waiting - one.waiting || other.usage - one.usage || one.user.localeCompare(other.user));
  return { users, others: queues.reduce((sum, queue) => sum + queue.others.users, 0) };
}

export interface WaitingRow extends QueueWaiting {
  readonly queue: string;
}

/** Jobs that wait in these queues, the next first; what the scheduler has no place for comes last. */
export function waitingOf(queues: readonly Queue[]): readonly WaitingRow[] {
  const waiting = queues.flatMap((queue) => queue.waiting_jobs.map((job) => ({ ...job, queue: queue.path })));
  return waiting.sort((one, other) => (one.rank || Infinity) - (other.rank || Infinity) || one.since - other.since);
}

/** Parts of a queue's bar, in percent of its whole length, which is the largest of the three numbers. */
export function bar({ used, entitled, quota }: Pick<Queue, "used" | "entitled" | "quota">): {
  readonly used: number;
  readonly over: number;
  readonly entitled: number;
  readonly quota: number;
} {
  const whole = Math.max(used, entitled, quota, 1) / 100;
  return { used: Math.min(used, entitled) / whole, over: Math.max(used - entitled, 0) / whole, entitled: entitled / whole, quota: quota / whole };
}

/** Slot-seconds as "12.3 slot-hours". */
export function usageWords(slotSeconds: number): string {
  const hours = slotSeconds / 3600;
  return `${hours === 0 ? "0" : hours < 0.01 ? "< 0.01" : number(Number(hours.toPrecision(3)))} slot-h`;
}

export const POLICIES: Readonly<Record<Queue["policy"], string>> = {
  efficient: "each slot goes where it is worth most",
  fairshare: "each job gets as many slots as the others, or by its priority as a weight",
  priority: "by priority, then by submission: who comes first gets all that it can use",
  fifo: "by submission alone",
};

/** "/research/vision" as an address of this page; the root is the page itself. */
export function addressOf(path: string): string {
  return `/queues${path.split("/").map(encodeURIComponent).join("/")}`;
}
