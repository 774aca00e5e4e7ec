/** What an event of the stream does to lists on the screen. */

import { describe, expect, it } from "vitest";

import { job, pageOf } from "../../testing/jobs";
import { EVERY_JOB, type JobFilter } from "../keys";
import type { Job, JobPage, Node } from "../types";
import { type JobPages, matches, patchJobs, patchNodes } from "./patch";

function list(...pages: JobPage[]): JobPages {
  return { pages, pageParams: pages.map(() => null) };
}

function ids(pages: JobPages): string[][] {
  return pages.pages.map((page) => page.items.map((each) => each.id));
}

function changed(...items: Job[]) {
  return { items, removed: [] };
}

const RUNNING: JobFilter = { ...EVERY_JOB, states: ["RUNNING"] };

describe("a list of jobs", () => {
  it("shows the newer picture of a job that it holds, and keeps what the event does not name", () => {
    const before = list(pageOf([3, 2, 1]));
    const { data } = patchJobs(before, EVERY_JOB, changed(job(2, { workers: 4 })));
    expect(data.pages[0]?.items[1]?.workers).toBe(4);
    expect(data.pages[0]?.items[0]).toBe(before.pages[0]?.items[0]);
    expect(data.pages[0]?.total).toBe(3);
  });

  it("is the very same where the event names none of its jobs, so that nothing is drawn again", () => {
    const before = list(pageOf([3, 2], { next: "c" }));
    expect(patchJobs(before, EVERY_JOB, changed(job(1))).data).toBe(before);
  });

  it("puts a new job on top and counts it", () => {
    const { data } = patchJobs(list(pageOf([3, 2], { total: 2 })), EVERY_JOB, changed(job(4)));
    expect(ids(data)).toEqual([["edt-4", "edt-3", "edt-2"]]);
    expect(data.pages[0]?.total).toBe(3);
  });

  it("orders several new jobs by number, not by the order in which the stream names them", () => {
    const { data } = patchJobs(list(pageOf([3])), EVERY_JOB, changed(job(4), job(11), job(9)));
    expect(ids(data)).toEqual([["edt-11", "edt-9", "edt-4", "edt-3"]]);
  });

  it("takes a job in that comes to match the filter, at its place on the right page", () => {
    const before = list(pageOf([9, 7], { next: "c" }), pageOf([5, 3], { next: "d" }));
    const { data } = patchJobs(before, RUNNING, changed(job(4)));
    expect(ids(data)).toEqual([
      ["edt-9", "edt-7"],
      ["edt-5", "edt-4", "edt-3"],
    ]);
  });

  it("leaves a job out that lies beyond the pages fetched so far", () => {
    const before = list(pageOf([9, 7], { next: "c" }));
    expect(ids(patchJobs(before, RUNNING, changed(job(2))).data)).toEqual([["edt-9", "edt-7"]]);
  });

  it("puts an old job at the end where the list is whole", () => {
    expect(ids(patchJobs(list(pageOf([9, 7])), RUNNING, changed(job(2))).data)).toEqual([["edt-9", "edt-7", "edt-2"]]);
  });

  it("lets a job go that no longer matches the filter, and counts one less on every page", () => {
    const before = list(pageOf([9, 7], { next: "c", total: 40 }), pageOf([5], { next: "d", total: 40 }));
    const { data } = patchJobs(before, RUNNING, changed(job(7, { state: "FINISHED" })));
    expect(ids(data)).toEqual([["edt-9"], ["edt-5"]]);
    expect(data.pages.map((page) => page.total)).toEqual([39, 39]);
  });

  it("keeps a job that the server found by a field that the stream does not send, and lets it go when its state no longer fits", () => {
    const sought: JobFilter = { ...RUNNING, text: "train_lm.py" };
    expect(ids(patchJobs(list(pageOf([2])), sought, changed(job(2, { workers: 4 }))).data)).toEqual([["edt-2"]]);
    expect(ids(patchJobs(list(pageOf([2])), sought, changed(job(2, { state: "FINISHED" }))).data)).toEqual([[]]);
  });

  it("drops what was removed, and asks to be fetched again since others move up", () => {
    const { data, stale } = patchJobs(list(pageOf([3, 2])), EVERY_JOB, { items: [], removed: ["edt-3"] });
    expect(ids(data)).toEqual([["edt-2"]]);
    expect(stale).toBe(true);
  });

  it("does not take in what was changed and removed in one go", () => {
    expect(ids(patchJobs(list(pageOf([3])), EVERY_JOB, { items: [job(4)], removed: ["edt-4"] }).data)).toEqual([["edt-3"]]);
  });

  it("fills an empty list with its first job", () => {
    expect(ids(patchJobs(list(pageOf([])), EVERY_JOB, changed(job(1))).data)).toEqual([["edt-1"]]);
  });
});

describe("a filter", () => {
  it("finds a text in id, name and owner, whatever its case", () => {
    const one = job(12, { app_name: "ResNet", owner: "bob" });
    expect(["t-12", "resn", "BOB"].map((text) => matches(one, { ...EVERY_JOB, text }))).toEqual([true, true, true]);
    expect(matches(one, { ...EVERY_JOB, text: "digits" })).toBe(false);
  });

  it("takes an owner whole", () => {
    expect(matches(job(1, { owner: "bobby" }), { ...EVERY_JOB, owner: "bob" })).toBe(false);
  });
});

describe("nodes", () => {
  const node = (name: string, values: Partial<Node> = {}): Node => ({ name, health: "up", slots: [], ...values }) as unknown as Node;

  it("are replaced in their places, and a new one comes after them in the order of names", () => {
    const after = patchNodes([node("n2"), node("n1")], [node("n1", { health: "lost" }), node("n10"), node("n9")]);
    expect(after.map((each) => `${each.name} ${each.health}`)).toEqual(["n2 up", "n1 lost", "n9 up", "n10 up"]);
  });
});
