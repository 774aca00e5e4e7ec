/** Where the time of a job's steps goes, in rows and words. Pure. */

import type { MeanTimes, StepTimes } from "../../../api/types";

/** The phases of a step, in the order in which they are drawn: what computes comes first, so that it can be compared. */
export const PHASES = ["forward", "backward", "data", "copies", "reduce", "apply", "other", "wait"] as const;
export type Phase = (typeof PHASES)[number];

export const PHASE_WORDS: Readonly<Record<Phase, string>> = {
  forward: "Forward",
  backward: "Backward",
  data: "Data",
  copies: "Gradient copies",
  reduce: "Reduce",
  apply: "Apply",
  other: "Other",
  wait: "Wait",
};

/** One line of the chart: an engine, or the mean of all that have none. */
export interface Row {
  readonly key: string;
  readonly name: string;
  readonly place: string;
  readonly times: MeanTimes;
  readonly isSlow: boolean;
  /** The others wait for it. */
  readonly isWaitedFor: boolean;
}

export function rowsOf(found: StepTimes): readonly Row[] {
  const engines = found.engines.map((engine) => ({
    key: String(engine.allocation),
    name: `Engine ${engine.allocation}`,
    place: engine.node === null ? "" : `${engine.node}, slot ${engine.slot ?? "?"}`,
    times: engine,
    isSlow: engine.slower !== null,
    isWaitedFor: engine.allocation === found.waited_for,
  }));
  if (found.mean_of_others === null) return engines;
  const others = { key: "others", name: `${found.others} others`, place: "mean", times: found.mean_of_others, isSlow: false, isWaitedFor: false };
  return [...engines, others];
}

/** The rows that are drawn at first: of many the first ones, those of whom something is said, and the mean. */
export function firstRows(rows: readonly Row[], most: number): readonly Row[] {
  return rows.filter((row, at) => at < most || row.isSlow || row.isWaitedFor || row.key === "others");
}

export function totalSeconds(times: MeanTimes): number {
  return PHASES.reduce((sum, phase) => sum + times.seconds[phase], 0);
}

/** "55 ms", "0.4 ms", "1.25 s": to three digits. */
export function stepTime(seconds: number): string {
  const [value, unit] = seconds >= 0.9995 ? [seconds, "s"] : [1000 * seconds, "ms"];
  return `${Number(value.toPrecision(3))} ${unit}`;
}

/** For which engine the others wait, if they do so for long and no remark says so already; null: nothing to say. */
export function waitWords(found: StepTimes, over = false): string | null {
  const engine = found.engines.find(({ allocation }) => allocation === found.waited_for);
  if (!engine || engine.slower !== null || found.waited_seconds < 0.05 * (found.step_seconds ?? 0)) return null;
  const rest = rowsOf(found).filter(({ key }) => key !== String(engine.allocation));
  const usual = rest.reduce((sum, { times }) => sum + times.micro_batches, 0) / Math.max(1, rest.length);
  const two = rest.length === 1;
  const why = engine.micro_batches > usual + 0.25 ? `, which ${over ? "had" : "has"} more micro-batches` : "";
  return `${two ? "The other engine" : "The others"} ${over ? "waited" : two ? "waits" : "wait"} ${stepTime(found.waited_seconds)} a step for engine ${engine.allocation}${why}.`;
}
