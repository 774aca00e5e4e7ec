import { describe, expect, it } from "vitest";

import type { Job } from "../../../api/types";
import { job } from "../../../testing/jobs";
import { shownTo } from "../../../testing/shown";
import { JobFacts } from "./JobFacts";

function shown(verdict: Job["exactness"]["verdict"], reason: string, progress: Job["progress"] = { step: 3 }): string {
  const exactness = { verdict, reason, comparisons: 0, compared_step: null };
  return shownTo("user", <JobFacts job={job(1, { exactness, progress })} />);
}

describe("the badge of a job's result", () => {
  it("is a green Exact only where engines were compared, and says how often", () => {
    const page = shown("exact", "compared 3 times");
    expect(page).toMatch(/data-tone="good"[^]*Exact[^]*compared 3 times/);
  });

  it("is no green Exact where nobody has compared, and says why", () => {
    const page = shown("not-compared", "Only one engine at a time has trained it.");
    expect(page).toMatch(/data-tone="calm"[^]*Not compared[^]*Only one engine at a time/);
    expect(page).not.toMatch(/data-tone="good"|>Exact/);
  });

  it("is a warning where engines differ, with the engine, the step and the setting", () => {
    const reason = "engine 7: differs (first difference in engine 7 at step 12: lr: 0.05 in engine 3, 0.1 in engine 7)";
    const page = shown("not-exact", reason);
    expect(page).toMatch(/data-tone="warn"[^]*Not exact/);
    expect(page).toContain(reason);
  });

  it("is not there before the first step", () => {
    expect(shown("not-compared", "It has not trained yet.", {})).not.toContain("Not compared");
  });
});

describe("what a job asked for", () => {
  it("stands among its facts where it is set", () => {
    const values = { queue: "/a/b", priority: 3, min_workers: 2, sizes: [2, 4], after: ["edt-8"], deadline: 1_795_287_800, time_limit: 5400, gpu_models: ["a100"] };
    const page = shownTo("user", <JobFacts job={job(1, values)} />);
    expect(page).toMatch(/Least workers[^]*2[^]*Sizes[^]*2, 4[^]*href="\/queues\/a\/b"[^]*Priority[^]*3[^]*href="\/jobs\/edt-8"/);
    expect(page).toMatch(/Deadline[^]*2026-11-21[^]*Time limit[^]*1 h 30 min[^]*a100/);
    expect(shownTo("user", <JobFacts job={job(1)} />)).not.toMatch(/Deadline|Time limit|Sizes|After/);
  });
});
