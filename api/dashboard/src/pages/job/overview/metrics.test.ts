import { expect, it } from "vitest";

import { job } from "../../../testing/jobs";
import { bestModelWords, metricsOf } from "./metrics";

it("tells of each metric what training and validation have of it, and its best", () => {
  const trained = job(1, {
    progress: { loss: 0.3, metrics: { loss: 0.3, perplexity: null } },
    validation: { step: 40, epoch: 2, time: 1, workers: 1, samples: 96, seconds: 1, metrics: { val_loss: 0.4, val_f1: 0.5 } },
    best: { val_loss: { value: 0.35, epoch: 1, step: 20 } },
  });
  expect(metricsOf(trained)).toEqual([
    { name: "loss", trained: 0.3, validated: 0.4, best: "best 0.35, epoch 1" },
    { name: "perplexity", trained: null, validated: undefined, best: "" },
    { name: "f1", trained: undefined, validated: 0.5, best: "" },
  ]);
});

it("names the loss alone before the first report", () => {
  expect(metricsOf(job(1))).toEqual([{ name: "loss", trained: undefined, validated: undefined, best: "" }]);
});

it("says which model is kept as the best", () => {
  const best = { metric: "val_accuracy", mode: "max" as const, value: 0.98, epoch: 7, step: 70, file: "model_best" };
  expect(bestModelWords(job(1, { best_model: best }))).toBe("val_accuracy 0.98, epoch 7, kept as model_best");
  expect(bestModelWords(job(1))).toBeNull();
});
