/** What the charts of a job's size and training show: columns and marks, by time or by step. Pure. */

import type { Allocation, Job, Metrics, Resize } from "../../../api/types";
import type { ChartMark, ChartSeries, XRange } from "../../../charts/props";
import { duration, plural } from "../../../components/format";
import { causeWord, isLoss, metricWord, otherMetrics, validationName, withoutValidation } from "../words";

export type XKind = "time" | "step";

/** How many slots a job held and how many engines counted, wherever one of them changed. */
export interface Sizes {
  readonly x: readonly number[];
  readonly held: readonly number[];
  readonly workers: readonly number[];
}

/**
 * Sizes by time, from the slots it held; the last point is `until`, so that the lines reach it. `also`: times at which
 * somebody may look, so that a cursor finds a point of its own there and not that of the next change.
 */
export function sizesByTime(
  allocations: readonly Allocation[],
  from: number,
  until: number,
  also: readonly number[] = [],
): Sizes {
  const edges = new Map<number, { held: number; workers: number }>();
  const add = (at: number, held: number, workers: number): void => {
    const time = Math.max(from, Math.min(at, until));
    const edge = edges.get(time) ?? { held: 0, workers: 0 };
    edges.set(time, { held: edge.held + held, workers: edge.workers + workers });
  };
  add(from, 0, 0);
  add(until, 0, 0);
  for (const time of also) add(time, 0, 0);
  for (const { decided_at, counted_at, released_at } of allocations) {
    add(decided_at, 1, 0);
    if (counted_at !== null) add(counted_at, 0, 1);
    if (released_at !== null) add(released_at, -1, counted_at === null ? 0 : -1);
  }
  const x = [...edges.keys()].sort((a, b) => a - b);
  const held: number[] = [];
  const workers: number[] = [];
  let now = { held: 0, workers: 0 };
  for (const time of x) {
    const edge = edges.get(time) ?? { held: 0, workers: 0 };
    now = { held: now.held + edge.held, workers: now.workers + edge.workers };
    held.push(now.held);
    workers.push(now.workers);
  }
  return { x, held, workers };
}

/**
 * Workers by step. Within one attempt each resize tells its step, which is exact; where a job went on from a
 * checkpoint, steps came twice, and what the training reported of itself is shown instead.
 */
export function workersByStep(resizes: readonly Resize[], metrics: Metrics): Pick<Sizes, "x" | "workers"> {
  const changes = resizes.filter((each) => each.step !== null).sort((a, b) => (a.step ?? 0) - (b.step ?? 0));
  const oneAttempt = resizes.every((each) => each.fence === resizes[0]?.fence);
  if (!oneAttempt || changes.length === 0) return { x: metrics.step, workers: metrics.workers.map((each) => each ?? 0) };
  const last = metrics.step.at(-1) ?? 0;
  const steps = new Set([...metrics.step, ...changes.map((each) => each.step ?? 0).filter((step) => step <= last)]);
  const x = [...steps].sort((a, b) => a - b);
  let next = 0;
  let now = 0;
  const workers = x.map((step) => {
    for (let change = changes[next]; change && (change.step ?? 0) <= step; change = changes[++next]) {
      now = change.workers ?? change.to_slots;
    }
    return now;
  });
  return { x, workers };
}

/** The chart of one metric: what the training and its validations told of it, on one axis. */
export interface MetricChart {
  readonly name: string;
  readonly title: string;
  readonly x: readonly number[];
  readonly series: readonly ChartSeries[];
}

/**
 * A chart for each metric, the loss first. Metrics do not share a chart: their sizes may have nothing in common. Those
 * of a validation are dots beside the training's line of the same metric, where there is one.
 */
export function metricCharts(metrics: Metrics, kind: XKind): readonly MetricChart[] {
  const { validation } = metrics;
  const trained = new Map<string, readonly (number | null)[]>([["loss", metrics.loss], ...otherMetrics(metrics.metrics)]);
  const validated = new Map(Object.entries(validation.metrics));
  const names = new Set([...trained.keys(), ...[...validated.keys()].map(withoutValidation)]);
  const at = kind === "time" ? metrics.time : metrics.step;
  const validatedAt = kind === "time" ? validation.time : validation.step;
  return [...names].map((name) => {
    const line = trained.get(name);
    const dots = validated.get(validationName(name));
    const x = dots ? [...new Set([...(line ? at : []), ...validatedAt])].sort((one, other) => one - other) : at;
    const series: ChartSeries[] = [];
    if (line) series.push({ label: name, values: dots ? spread(x, at, line) : line, colour: "accent" });
    if (dots) series.push({ label: validationName(name), values: spread(x, validatedAt, dots), colour: "second", dots: true });
    return { name, title: metricWord(name), x, series };
  });
}

/** The values at the places of `x` that are theirs; undefined at all others. */
function spread(x: readonly number[], at: readonly number[], values: readonly (number | null)[]): (number | null | undefined)[] {
  const known = new Map(at.map((place, index) => [place, values[index] ?? null]));
  return x.map((place) => known.get(place));
}

/** The stretch that all charts show where nothing is zoomed. */
export function wholeRange(kind: XKind, job: Job, metrics: Metrics | undefined, now: number): XRange {
  if (kind === "step") return { from: 0, to: Math.max(metrics?.step.at(-1) ?? 1, 1) };
  const from = job.started_at ?? job.created_at;
  return { from, to: Math.max(job.finished_at ?? now, from + 1) };
}

/** A mark for each resize that has a place on this axis. */
export function marks(resizes: readonly Resize[], kind: XKind): readonly ChartMark[] {
  const found: ChartMark[] = [];
  for (const resize of resizes) {
    const at = kind === "time" ? (resize.first_step_at ?? resize.gone_at ?? resize.decided_at) : resize.step;
    if (at === null) continue;
    found.push({ at, label: `${resize.from_slots} → ${resize.to_slots}`, detail: summary(resize), kind: kindOf(resize), id: resize.number });
  }
  return found;
}

export function kindOf(resize: Resize): ChartMark["kind"] {
  if (isLoss(resize.cause)) return "failure";
  return resize.to_slots >= resize.from_slots ? "grow" : "shrink";
}

/** "Engine lost, pause 0.4 s, 3 micro-batches done again" */
export function summary(resize: Resize): string {
  const parts = [causeWord(resize.cause)];
  if (resize.pause_seconds !== null) parts.push(`pause ${duration(resize.pause_seconds)}`);
  if (resize.recomputed) parts.push(`${plural(resize.recomputed, "micro-batch", "micro-batches")} done again`);
  return parts.join(", ");
}

export interface Totals {
  readonly pause: number;
  readonly recomputed: number;
  readonly losses: number;
}

export function totals(resizes: readonly Resize[]): Totals {
  return {
    pause: resizes.reduce((sum, each) => sum + (each.pause_seconds ?? 0), 0),
    recomputed: resizes.reduce((sum, each) => sum + (each.recomputed ?? 0), 0),
    losses: resizes.filter((each) => isLoss(each.cause)).length,
  };
}

/** What happened in a resize, and how long after it was decided. */
export interface Milestone {
  readonly name: string;
  readonly time: number;
  readonly after: number;
}

export function milestones(resize: Resize): readonly Milestone[] {
  const woken = { notification: " by the notification", timer: " by its timer", start: " at its start" }[resize.woken_by ?? ""] ?? "";
  const all: readonly (readonly [string, number | null])[] = [
    ["Decided by the scheduler", resize.decided_at],
    ["The node was notified", resize.notified_at],
    [`The node's agent woke${woken}`, resize.woken_at],
    ["The engine's process started", resize.started_at],
    ["The engine has the weights", resize.joined_at],
    ["Its first step counts", resize.first_step_at],
    ["The process of the one that left is gone", resize.gone_at],
  ];
  return all
    .flatMap(([name, time]) => (time === null ? [] : [{ name, time, after: time - resize.decided_at }]))
    .sort((one, other) => one.time - other.time);
}
