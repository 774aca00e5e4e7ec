/** A job's states and history, as the Overview shows them. */

import { expect, it } from "vitest";

import { event, job } from "../../../testing/jobs";
import { folded, spans } from "./states";

const move = (seq: number, after: string) => event(seq, "state", { data: { after } });

it("lasts from one move to the next, and the last one until now", () => {
  const found = spans(job(1), [move(1, "SUBMITTED"), move(3, "PENDING"), event(4, "waiting"), move(5, "RUNNING")], 1010);
  expect(found.map(({ state, from, to, lasts }) => [state, from, to, lasts])).toEqual([
    ["SUBMITTED", 1001, 1003, false],
    ["PENDING_CRD_SCHEDULER", 1003, 1005, false],
    ["RUNNING", 1005, 1010, true],
  ]);
});

it("begins with the submission where the history does not hold it", () => {
  expect(spans(job(1, { created_at: 999 }), [move(1, "RUNNING")], 1010)[0]).toMatchObject({ state: "SUBMITTED", from: 999 });
});

it("passes through a state again after a restart", () => {
  const found = spans(job(1), [move(1, "RUNNING"), move(2, "PENDING"), move(3, "RUNNING")], 1010);
  expect(found.map((span) => span.state)).toEqual(["SUBMITTED", "RUNNING", "PENDING_CRD_SCHEDULER", "RUNNING"]);
});

it("reads newest first, and checkpoints in a row as one line", () => {
  const lines = folded([
    event(1, "state"),
    event(2, "checkpointed"),
    event(3, "checkpointed"),
    event(4, "resize"),
    event(5, "checkpointed"),
  ]);
  expect(lines.map(({ event: { seq }, like }) => [seq, like])).toEqual([
    [5, 0],
    [4, 0],
    [3, 1],
    [1, 0],
  ]);
});
