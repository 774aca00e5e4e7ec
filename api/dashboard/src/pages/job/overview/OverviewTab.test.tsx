import { describe, expect, it } from "vitest";

import type { Job } from "../../../api/types";
import { job } from "../../../testing/jobs";
import { shownTo } from "../../../testing/shown";
import { OverviewTab } from "./OverviewTab";

function shown(values: Partial<Job>): string {
  return shownTo("user", <OverviewTab job={job(1, values)} />);
}

describe("the page of a gang", () => {
  it("shows its processes and restarts, and nothing that only elastic jobs have", () => {
    const page = shown({ kind: "gang", processes: 3, max_workers: 3, num_worker: 3, slots: 3, max_restarts: 2, restarts: 1, engines: null });
    expect(page).toContain("its 3 processes started together and keep their slots");
    expect(page).toMatch(/Restarts used[^]*1 of 2/);
    expect(page).toContain("Gang of 3 processes, not elastic");
    expect(page).not.toMatch(/Exact|Not compared|Loss|Samples per second|no step yet|Useful workers|at most/);
  });
});

describe("how far a job is", () => {
  it("ends where its training ended, with the epoch", () => {
    const page = shown({
      state: "FINISHED",
      progress: { step: 46, steps_total: 69, epoch: 2, epochs: 3, samples_per_second: 680 },
      share_done: 46 / 69,
      ended_early: "ended early at epoch 2 of 3",
    });
    expect(page).toMatch(/66 %[^]*step 46 of 69[^]*ended early at epoch 2 of 3/);
    expect(page).toContain('aria-valuenow="67"');
    expect(page).toMatch(/Samples per second[^]*680[^]*mean of its training/);
  });

  it("is told with the metrics of training and validation under their own names", () => {
    const page = shown({
      progress: { step: 1, loss: 0.25, metrics: { loss: 0.25, perplexity: 12 } },
      validation: { step: 1, epoch: 1, time: 1, workers: 1, samples: 1, seconds: 1, metrics: { val_loss: 0.5 } },
      best: { val_loss: { value: 0.5, epoch: 1, step: 1 } },
    });
    expect(page).toMatch(/Loss[^]*0\.25[^]*val_loss 0\.5[^]*best 0\.5, epoch 1[^]*Perplexity[^]*12/);
    expect(page).not.toMatch(/[Aa]ccuracy/);
  });
});

describe("what is said on top of a job's page", () => {
  it("is what a finished job's user should know, calmly", () => {
    const page = shown({ state: "FINISHED", message: "it used one slot, though it may have more" });
    expect(page).toMatch(/To know[^]*it used one slot/);
    expect(page).not.toContain('role="alert"');
  });

  it("is why a job failed, as an alert", () => {
    expect(shown({ state: "ERROR", message: "ValueError: no data" })).toMatch(/role="alert"[^]*The job failed[^]*ValueError: no data/);
  });

  it("is, of a gang, which rank failed, with a link to what that rank wrote", () => {
    const page = shown({ kind: "gang", processes: 3, state: "ERROR", message: "rank 2: ValueError: no data" });
    expect(page).toMatch(/logs\?stream=rank-2\.err"[^]*What rank 2 wrote to standard error/);
  });

  it("is what is to be known of the submission, such as a misspelt option", () => {
    expect(shown({ remark: "--numWorkers went to the script" })).toMatch(/About the submission[^]*--numWorkers went to the script/);
    expect(shown({})).not.toContain("About the submission");
  });

  it("is how many slots a gang needs at once", () => {
    const waiting = { blocking: "capacity", reason: "It needs 3 slots at once", rank: 1, need: 3, free: 1 };
    const page = shown({ kind: "gang", processes: 3, state: "PENDING_CRD_SCHEDULER", slots: 0, waiting });
    expect(page).toMatch(/needs 3[^]*at once[^]*1[^]*free now/);
  });

  it("is who has paused a job, and where it will go on", () => {
    const waiting = { blocking: "paused", reason: "paused by ana", rank: 0, need: 1, free: 3 };
    const page = shown({ state: "PENDING_CRD_SCHEDULER", slots: 0, waiting, paused_by: "ana", checkpoint_step: 48 });
    expect(page).toMatch(/Paused by ana[^]*goes on from step 48/);
    expect(page).not.toContain("Place 0");
  });

  it("is how a stopped job can go on", () => {
    expect(shown({ state: "KILLED", kept: "its training is kept up to step 76 of 100" })).toMatch(/It can go on[^]*Its training is kept up to step 76 of 100/);
  });

  it("is nothing of a job that finished without a word", () => {
    expect(shown({ state: "FINISHED", message: null })).not.toContain("To know");
  });
});
