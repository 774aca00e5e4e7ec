import { expect, it } from "vitest";

import { failedRank, rankOf, ranksOf } from "./ranks";

it("knows the logs of ranks from others", () => {
  expect(rankOf("rank-12.err")).toEqual({ rank: 12, kind: "err" });
  for (const other of ["elog", "out", "engine-1.out", "rank-1.out.1"]) expect(rankOf(other)).toBeNull();
});

it("reads in a gang's message which rank failed", () => {
  expect(failedRank({ kind: "gang", message: "rank 12: ValueError: no such sample" })).toBe(12);
  expect(failedRank({ kind: "gang", message: "rank 0 ended with status 3" })).toBe(0);
  expect(failedRank({ kind: "gang", message: "the command 'x' was not found" })).toBeNull();
  expect(failedRank({ kind: "elastic", message: "rank 1: no gang" })).toBeNull();
});

it("offers all ranks that the job has, also those that have written nothing yet", () => {
  expect(ranksOf({ processes: 3 }, [{ stream: "rank-0.out" }, { stream: "elog" }])).toEqual([0, 1, 2]);
  expect(ranksOf({ processes: 1 }, [{ stream: "rank-10.out" }, { stream: "rank-2.err" }])).toEqual([0, 2, 10]);
});
