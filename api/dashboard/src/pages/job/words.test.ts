import { describe, expect, it } from "vitest";

import { job } from "../../testing/jobs";
import { kindWords, lostByPausing, lostByStopping, metricWord, notElastic, otherMetrics, validationName, withoutValidation } from "./words";

describe("a job that is stopped", () => {
  it("is said to be kept up to its newest checkpoint, or not at all", () => {
    expect(lostByStopping(job(7, { checkpoint_step: 45 }))).toMatch(/kept up to step 45 at least[^]*edt submit … --resume-from edt-7/);
    expect(lostByStopping(job(7))).toContain("no checkpoint yet, so it cannot go on later");
    expect(lostByStopping(job(7, { kind: "gang", checkpoint_step: null }))).toContain("has some seconds to save. It cannot go on later");
  });
});

describe("a job that is paused", () => {
  it("begins anew, which is asked before, if it is a gang or trains in a loop of its own", () => {
    expect(lostByPausing(job(7, { engines: 4, slots: 2 }))).toBeNull();
    expect(lostByPausing(job(7, { engines: null, slots: 0 }))).toBeNull();
    expect(lostByPausing(job(7, { engines: null, slots: 1 }))).toMatch(/^has not said that it is elastic: [^]*from the beginning of their script/);
    expect(lostByPausing(job(7, { kind: "gang", slots: 1 }))).toMatch(/^is not elastic: [^]*from the beginning of their script/);
  });
});

describe("a gang", () => {
  const gang = job(1, { kind: "gang", framework: "distPyTorch", processes: 3, max_workers: 3, slots: 3 });

  it("is named by its framework, as an elastic job is: PyTorch is another one than edtPyTorch", () => {
    expect(kindWords(gang)).toBe("distPyTorch gang");
    expect(kindWords(job(1))).toBe("edtPyTorch job");
  });

  it("is said not to be elastic, and when it starts", () => {
    expect(notElastic(gang)).toBe("This job is not elastic: its 3 processes started together and keep their slots.");
    expect(notElastic({ ...gang, processes: 1, max_workers: 2 })).toBe("This job is not elastic: its process keeps its 2 slots.");
    const waiting = { ...gang, slots: 0, state: "PENDING_CRD_SCHEDULER" as const };
    expect(notElastic(waiting)).toBe("This job is not elastic: it starts when 3 slots are free at once, and keeps them.");
    expect(notElastic({ ...waiting, max_workers: 1 })).toContain("when 1 slot is free at once");
  });

  it("is said to have kept its slots once it is over, or never to have started", () => {
    const over = { ...gang, slots: 0, state: "ERROR" as const };
    expect(notElastic({ ...over, attempts: 1 })).toBe("This job is not elastic: its 3 processes started together and kept their slots.");
    expect(notElastic({ ...over, attempts: 1, processes: 1, max_workers: 1 })).toBe("This job is not elastic: its process kept its slot.");
    expect(notElastic({ ...over, attempts: 0 })).toBe("This job is not elastic: it needed 3 slots at once, and never started.");
  });
});

describe("metrics by name", () => {
  it("are written as people write", () => {
    expect(metricWord("gradient_noise_scale")).toBe("Gradient noise scale");
    expect(metricWord("accuracy")).toBe("Accuracy");
    expect(metricWord("")).toBe("");
  });

  it("are told from those of a validation by their beginning", () => {
    expect(validationName("accuracy")).toBe("val_accuracy");
    expect([withoutValidation("val_accuracy"), withoutValidation("value")]).toEqual(["accuracy", "value"]);
  });

  it("leave out the loss, which stands for itself", () => {
    expect(otherMetrics({ loss: 1, Loss: 2, accuracy: 3 })).toEqual([["accuracy", 3]]);
  });
});
