/** Queues as rows, and what is below one of them. */

import { describe, expect, it } from "vitest";

import { queue, user, waiting } from "../../testing/answers";
import { addressOf, bar, below, nearest, treeRows, usageWords, usersOf, waitingOf } from "./tree";

const TREE = ["", "/a", "/a/b", "/a/b/c", "/ab"].map((path) => queue(path));
const paths = (rows: ReturnType<typeof treeRows>): readonly string[] => rows.map((row) => row.queue.path);

describe("the rows of the tree", () => {
  it("leave out all that is below a closed queue", () => {
    const rows = treeRows(TREE, new Set(["/a"]), "");
    expect(paths(rows)).toEqual(["", "/a", "/ab"]);
    expect(rows.map(({ open }) => open)).toEqual([true, false, null]);
  });

  it("are, of a searched word, the queues that have it and those above them, closed or not", () => {
    expect(paths(treeRows(TREE, new Set(["/a"]), "/C"))).toEqual(["", "/a", "/a/b", "/a/b/c"]);
    expect(treeRows(TREE, new Set(), "nowhere")).toEqual([]);
  });
});

describe("what is below a queue", () => {
  it("is itself and what its path begins with as a whole", () => {
    expect(below(TREE, "/a").map(({ path }) => path)).toEqual(["/a", "/a/b", "/a/b/c"]);
    expect(below(TREE, "")).toHaveLength(5);
  });

  it("has its users, those who hold most first, and counts those who are not named", () => {
    const others = { users: 3, entitled: 0, held: 0, running: 0, waiting: 0, usage: 0 };
    const found = usersOf([queue("/a", { users: [user("ana", { held: 1 })], others }), queue("/a/b", { users: [user("bob", { held: 2 })] })]);
    expect(found.users.map((each) => [each.user, each.queue])).toEqual([["bob", "/a/b"], ["ana", "/a"]]);
    expect(found.others).toBe(3);
  });

  it("has its waiting jobs by their place among all, those without a place last", () => {
    const jobs = waitingOf([queue("/a", { waiting_jobs: [waiting("edt-1", 0), waiting("edt-2", 3)] }), queue("/b", { waiting_jobs: [waiting("edt-3", 1)] })]);
    expect(jobs.map(({ job }) => job)).toEqual(["edt-3", "edt-2", "edt-1"]);
  });
});

it("a path without a queue belongs to the nearest one above", () => {
  expect(nearest(TREE, "/a/x/y")).toBe("/a");
  expect(nearest(TREE, "/x")).toBe("");
});

it("the bar of a queue is as long as the largest of its numbers", () => {
  expect(bar({ used: 3, entitled: 2, quota: 4 })).toEqual({ used: 50, over: 25, entitled: 50, quota: 100 });
  expect(bar({ used: 0, entitled: 0, quota: 0 })).toEqual({ used: 0, over: 0, entitled: 0, quota: 0 });
});

it("usage is told in slot-hours", () => {
  expect([0, 1, 1426, 36_000_000].map(usageWords)).toEqual(["0 slot-h", "< 0.01 slot-h", "0.396 slot-h", "10k slot-h"]);
});

it("an address keeps the parts of a path apart and what is strange in them", () => {
  expect(addressOf("/a/b c")).toBe("/queues/a/b%20c");
  expect(addressOf("")).toBe("/queues");
});
