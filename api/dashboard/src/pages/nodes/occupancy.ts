/** What the page shows of a node: who is on it, how old its lease is, how busy it was. Pure. */

import type { NodeVerb } from "../../api/nodes";
import type { Node, NodeUsage } from "../../api/types";

/** A lease older than this is shown as ageing; the default lease ends after thirty seconds. */
export const AGEING_SECONDS = 10;

/** A job on a node. */
export interface Holder {
  readonly execId: string;
  readonly slots: number;
  /** Of these, how many it has been asked to give back. */
  readonly leaving: number;
  /** Whether it is a gang, which leaves whole. */
  readonly gang: boolean;
}

/** The jobs on a node, the largest first. */
export function holders(node: Pick<Node, "slots">): Holder[] {
  const found = new Map<string, { execId: string; slots: number; leaving: number; gang: boolean }>();
  for (const slot of node.slots) {
    if (slot.exec_id === null) continue;
    const holder = found.get(slot.exec_id) ?? { execId: slot.exec_id, slots: 0, leaving: 0, gang: slot.kind === "gang" };
    holder.slots += 1;
    if (slot.leaving) holder.leaving += 1;
    found.set(slot.exec_id, holder);
  }
  return [...found.values()].sort((one, other) => other.slots - one.slots || one.execId.localeCompare(other.execId, "en", { numeric: true }));
}

export const heldSlots = (node: Pick<Node, "slots">): number => node.slots.filter((slot) => slot.exec_id !== null).length;

/** Mean of what is known of the slots' utilisation, 0 to 1. */
export function meanUse(slots: readonly { readonly utilisation?: number | null }[]): number | null {
  const known = slots.map((slot) => slot.utilisation).filter((value) => value !== null && value !== undefined);
  return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length;
}

/** Each slot's use over one row of times, as charts take it. */
export interface UsageSeries {
  readonly x: readonly number[];
  readonly slots: readonly { readonly slot: string; readonly use: (number | null)[]; readonly memory: (number | null)[] }[];
  /** Over all slots, 0 to 1. */
  readonly mean: (number | null)[];
}

/** Where no sample came for this many times the usual interval, the line is broken. */
const GAP = 3.5;

export function usageSeries(usage: NodeUsage): UsageSeries {
  const slots = Object.entries(usage.slots).sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }));
  const times = [...new Set(slots.flatMap(([, series]) => series.time.map(Math.round)))].sort((one, other) => one - other);
  const steps = times.slice(1).map((time, at) => time - (times[at] ?? time)).sort((one, other) => one - other);
  const usual = steps[Math.floor(steps.length / 2)] ?? 0;
  const x = times.flatMap((time, at) => {
    const next = times[at + 1];
    return next !== undefined && next - time > GAP * usual ? [time, time + usual] : [time];
  });
  const indexOf = new Map(x.map((time, at) => [time, at]));
  const spread = (times: readonly number[], values: readonly (number | null)[]): (number | null)[] => {
    const row = new Array<number | null>(x.length).fill(null);
    for (const [at, time] of times.entries()) row[indexOf.get(Math.round(time)) as number] = values[at] ?? null;
    return row;
  };
  const columns = slots.map(([slot, series]) => ({
    slot, use: spread(series.time, series.utilisation), memory: spread(series.time, series.memory_bytes),
  }));
  return { x, slots: columns, mean: x.map((_, at) => meanUse(columns.map((each) => ({ utilisation: each.use[at] ?? null })))) };
}

/** What the dialog tells an admin before it is done. */
export function whatHappens(verb: NodeVerb, node: Pick<Node, "name" | "slots">): string {
  const on = holders(node);
  const slots = heldSlots(node);
  const jobs = `${on.length} ${on.length === 1 ? "job" : "jobs"}`;
  if (verb === "cordon") {
    return on.length === 0
      ? "Nothing new starts here until it is uncordoned. No job is on it now."
      : `Nothing new starts here until it is uncordoned. The ${jobs} on it ${on.length === 1 ? "goes" : "go"} on with the slots they hold.`;
  }
  if (verb === "remove") {
    return "It leaves the list. What happened on it stays on the timeline, and it comes back if its agent joins again. " +
      "It is refused while a job that goes on still holds slots there.";
  }
  if (verb === "uncordon") return "Its slots are given to jobs again, those that wait first.";
  const gangs = on.filter((each) => each.gang);
  const whole = gangs.length === 0 ? "" : `${gangs.map((each) => each.execId).join(", ")} ${gangs.length === 1 ? "is a gang, gives" : "are gangs, give"} back all slots, also on other nodes, and ` +
    `${gangs.length === 1 ? "starts" : "start"} again where enough are free. `;
  if (gangs.length > 0 && gangs.length === on.length) return `${whole}Processes get SIGTERM and some time to save. Nothing new starts here until it is uncordoned.`;
  return on.length === 0
    ? "No job is on it. Nothing new starts here until it is uncordoned; it can be switched off at once."
    : `${whole}${jobs} give back ${slots === 1 ? "1 slot" : `${slots} slots`} here, each at the end of its step, and train on with what they hold elsewhere. ` +
      "A job that holds nothing elsewhere saves a checkpoint and waits for a slot. No sample is lost. Nothing new starts here until it is uncordoned.";
}
