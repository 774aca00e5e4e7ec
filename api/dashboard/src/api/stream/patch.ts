/**
 * What an event of the stream does to what is on the screen. Pure.
 *
 * A list is patched in place where the event says enough. What it cannot say, whether a job that is new here matches
 * a text that the server searched for, is left to the next fetch: then `stale` is true.
 */

import type { JobFilter } from "../keys";
import { type Job, type JobPage, jobNumber, type Node } from "../types";

export interface JobsEvent {
  readonly items: readonly Job[];
  readonly removed: readonly string[];
}

/** A list of jobs as the cache holds it: the pages fetched so far, newest job first. */
export interface JobPages {
  readonly pages: readonly JobPage[];
  readonly pageParams: readonly unknown[];
}

export interface Patched<T> {
  readonly data: T;
  /** The list may lack a job, or its total may be wrong: fetch it again. */
  readonly stale: boolean;
}

export function patchJobs(before: JobPages, filter: JobFilter, event: JobsEvent): Patched<JobPages> {
  const changed = new Map(event.items.map((job) => [job.id, job]));
  const removed = new Set(event.removed);
  let gone = 0;
  const pages = before.pages.map((page) => {
    let touched = false;
    const items: Job[] = [];
    for (const job of page.items) {
      const newer = changed.get(job.id);
      changed.delete(job.id);
      // The server found it by its text, and looks in more fields than the stream sends.
      if (removed.has(job.id) || (newer && !matches(newer, { ...filter, text: "" }))) {
        gone += 1;
        touched = true;
      } else {
        touched ||= newer !== undefined;
        items.push(newer ?? job);
      }
    }
    return touched ? { ...page, items } : page;
  });
  const fresh = [...changed.values()].filter((job) => !removed.has(job.id) && matches(job, filter));
  const inserted = insert(pages, fresh);
  const stale = removed.size > 0 || (filter.text !== "" && fresh.length > 0);
  if (gone === 0 && inserted.added === 0 && pages.every((page, at) => page === before.pages[at])) {
    return { data: before, stale };
  }
  const total = Math.max(0, (before.pages[0]?.total ?? 0) - gone + inserted.added);
  const data = { ...before, pages: inserted.pages.map((page) => ({ ...page, total })) };
  // Jobs that were filtered away, or filtered in, beyond the last page fetched change the total unseen.
  return { data, stale };
}

/** Put jobs that the list does not hold where their number belongs, as far as the list has been fetched. */
function insert(pages: readonly JobPage[], fresh: readonly Job[]): { pages: readonly JobPage[]; added: number } {
  const last = pages.at(-1);
  const whole = !last?.next;
  const lowest = Math.min(...pages.flatMap((page) => page.items.map((job) => jobNumber(job.id))), Infinity);
  const known = fresh.filter((job) => whole || jobNumber(job.id) > lowest);
  if (known.length === 0 || pages.length === 0) return { pages, added: 0 };
  const result = pages.map((page) => ({ ...page, items: [...page.items] }));
  for (const job of [...known].sort((a, b) => jobNumber(a.id) - jobNumber(b.id))) {
    const number = jobNumber(job.id);
    const home = result.find((page) => page.items.some((other) => jobNumber(other.id) < number)) ?? result.at(-1);
    const at = home?.items.findIndex((other) => jobNumber(other.id) < number) ?? -1;
    if (at < 0) home?.items.push(job);
    else home?.items.splice(at, 0, job);
  }
  return { pages: result, added: known.length };
}

/** Whether a job belongs in a list of this filter, as far as one can tell here. */
export function matches(job: Job, filter: JobFilter): boolean {
  if (filter.states.length > 0 && !filter.states.includes(job.state)) return false;
  if (filter.owner !== "" && job.owner !== filter.owner) return false;
  const text = filter.text.toLowerCase();
  return text === "" || [job.id, job.app_name, job.owner].some((part) => part.toLowerCase().includes(text));
}

/** Nodes by name; one that is new here goes to the end, in the order of names, and those `removed` go. */
export function patchNodes(before: readonly Node[], changed: readonly Node[], removed: readonly string[] = []): readonly Node[] {
  const newer = new Map(changed.map((node) => [node.name, node]));
  const items = before.map((node) => {
    const found = newer.get(node.name);
    newer.delete(node.name);
    return found ?? node;
  });
  const fresh = [...newer.values()].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  return [...items, ...fresh].filter((node) => !removed.includes(node.name));
}
