/** What the charts of a job's size show. */

import { expect, it } from "vitest";

import { allocation, job, resize } from "../../../testing/jobs";
import type { Metrics } from "../../../api/types";
import { kindOf, marks, metricCharts, milestones, sizesByTime, summary, totals, wholeRange, workersByStep } from "./curves";

it("counts a slot as held from its decision, and as a worker from its first counted step, until its process is gone", () => {
  const one = allocation(1, { decided_at: 10, counted_at: 12 });
  const two = allocation(2, { decided_at: 20, counted_at: 23, released_at: 30 });
  expect(sizesByTime([one, two], 10, 40)).toEqual({
    x: [10, 12, 20, 23, 30, 40],
    held: [1, 1, 2, 2, 1, 1],
    workers: [0, 1, 1, 2, 1, 1],
  });
});

it("never counts an engine that did not come to a step", () => {
  const sizes = sizesByTime([allocation(1, { decided_at: 10, released_at: 15 })], 10, 20);
  expect(sizes.workers).toEqual([0, 0, 0]);
  expect(sizes.held).toEqual([1, 0, 0]);
});

it("counts what was held before the stretch begins", () => {
  const sizes = sizesByTime([allocation(1, { decided_at: 5, counted_at: 6 })], 10, 20);
  expect(sizes).toEqual({ x: [10, 20], held: [1, 1], workers: [1, 1] });
});

it("has a point wherever the training reported something, for a cursor to find", () => {
  const sizes = sizesByTime([allocation(1, { decided_at: 10, counted_at: 12 })], 10, 40, [11, 20]);
  expect(sizes).toEqual({ x: [10, 11, 12, 20, 40], held: [1, 1, 1, 1, 1], workers: [0, 0, 1, 1, 1] });
});

const metrics = (step: number[], workers: (number | null)[]): Metrics => ({ step, workers }) as unknown as Metrics;

it("changes the workers at the very step of the resize, not at the next one reported", () => {
  const resizes = [resize(1, { step: 0, to_slots: 1 }), resize(2, { step: 13, workers: 2 }), resize(3, { step: 99, workers: 4 })];
  expect(workersByStep(resizes, metrics([6, 12, 18, 24], [1, 1, 2, 2]))).toEqual({
    x: [0, 6, 12, 13, 18, 24],
    workers: [1, 1, 1, 2, 2, 2],
  });
});

it("shows the workers that the training reported where steps came twice", () => {
  const resizes = [resize(1, { step: 0 }), resize(2, { step: 5, fence: 2 })];
  expect(workersByStep(resizes, metrics([1, 2], [1, null]))).toEqual({ x: [1, 2], workers: [1, 0] });
});

const validated: Metrics = {
  step: [5, 10, 15],
  time: [50, 100, 150],
  epoch: [1, 1, 2],
  workers: [1, 1, 1],
  loss: [0.9, null, 0.7],
  samples_per_second: [1, 1, 1],
  metrics: { loss: [0.9, null, 0.7], perplexity: [1e20, 40, 20] },
  total: 3,
  validation: { step: [10, 20], time: [105, 205], epoch: [1, 2], metrics: { val_loss: [0.8, 0.6], val_f1: [null, 0.5] }, total: 2 },
};

it("draws the validation in the chart of the training's metric of the same name, with dots at its own places", () => {
  const [loss] = metricCharts(validated, "step");
  expect(loss).toEqual({
    name: "loss",
    title: "Loss",
    x: [5, 10, 15, 20],
    series: [
      { label: "loss", values: [0.9, null, 0.7, undefined], colour: "accent" },
      { label: "val_loss", values: [undefined, 0.8, undefined, 0.6], colour: "second", dots: true },
    ],
  });
  expect(metricCharts(validated, "time")[0]?.x).toEqual([50, 100, 105, 150, 205]);
});

it("gives each metric a chart of its own, under its name, whatever its size, and those of validations alone, too", () => {
  const charts = metricCharts(validated, "step");
  expect(charts.map((chart) => [chart.title, chart.series.map((each) => each.label)])).toEqual([
    ["Loss", ["loss", "val_loss"]],
    ["Perplexity", ["perplexity"]],
    ["F1", ["val_f1"]],
  ]);
  expect(charts.flatMap((chart) => chart.series).some((each) => each.axis === "right")).toBe(false);
  expect(charts[1]?.x).toEqual([5, 10, 15]);
  expect(charts[2]?.x).toEqual([10, 20]);
});

it("marks a resize where the size changed in the training, by time and by step", () => {
  const grown = resize(1, { decided_at: 10, first_step_at: 14, step: 7 });
  const shrunk = resize(2, { from_slots: 2, to_slots: 1, decided_at: 20, gone_at: 21, step: 9 });
  expect(marks([grown, shrunk], "time").map((mark) => [mark.at, mark.label, mark.kind])).toEqual([
    [14, "1 → 2", "grow"],
    [21, "2 → 1", "shrink"],
  ]);
  expect(marks([grown, shrunk, resize(3)], "step").map((mark) => mark.at)).toEqual([7, 9]);
});

it("tells a loss from a planned change, with what it cost", () => {
  const lost = resize(1, { cause: "engine-lost", from_slots: 2, to_slots: 1, pause_seconds: 0.4, recomputed: 3 });
  expect(kindOf(lost)).toBe("failure");
  expect(summary(lost)).toBe("Engine lost, pause 400 ms, 3 micro-batches done again");
  expect(totals([lost, resize(2, { pause_seconds: 0.1 })])).toEqual({ pause: 0.5, recomputed: 3, losses: 1 });
});

it("shows a running job up to now, and one that is over up to its end", () => {
  expect(wholeRange("time", job(1, { started_at: 5 }), undefined, 50)).toEqual({ from: 5, to: 50 });
  expect(wholeRange("time", job(1, { started_at: 5, finished_at: 20 }), undefined, 50)).toEqual({ from: 5, to: 20 });
});

it("lists what happened in a resize in its order, with the time since the decision", () => {
  const steps = milestones(resize(1, { decided_at: 10, notified_at: 10.2, woken_at: 10.1, woken_by: "timer", first_step_at: 14 }));
  expect(steps.map(({ name, after }) => `${name} ${after.toFixed(1)}`)).toEqual([
    "Decided by the scheduler 0.0",
    "The node's agent woke by its timer 0.1",
    "The node was notified 0.2",
    "Its first step counts 4.0",
  ]);
});
