/** Words for what an explanation names by codes, and its few numbers. Pure. */

import type { Event, Explained } from "../../../api/types";
import type { Tone } from "../../../components/Badge";
import { plural, shortDuration } from "../../../components/format";

type Expected = NonNullable<Explained["expected"]>;
export type Verdict = NonNullable<Explained["nodes"]>["items"][number]["verdict"];

const RULES: Readonly<Record<string, string>> = {
  capacity: "Other jobs hold the slots",
  vacating: "Slots are being vacated",
  cooldown: "Waits after a failure",
  nodes: "No node takes work",
  paused: "Paused",
  key: "Its environment cannot be read",
  quota: "Entitlement is used up",
  priority: "Higher priorities first",
  reserved: "Kept for a gang",
  topology: "Not free together",
  dependency: "Another job first",
  asked: "Nodes were asked for",
};

/** The rule that keeps a job waiting; "" starts with the present plan, and a rule of a newer release is shown as it came. */
export function ruleWord(rule: string): string {
  return rule === "" ? "Starts now" : (RULES[rule] ?? rule);
}

export const VERDICTS: Readonly<Record<Verdict, { word: string; tone: Tone }>> = {
  free: { word: "Free", tone: "good" },
  kept: { word: "Kept for others", tone: "warn" },
  full: { word: "Full", tone: "calm" },
  others: { word: "For another job", tone: "calm" },
  avoided: { word: "Still leaving it", tone: "calm" },
  alone: { word: "Out of reach", tone: "warn" },
  small: { word: "Too small", tone: "warn" },
  containers: { word: "No containers", tone: "warn" },
  model: { word: "Other model", tone: "warn" },
  device: { word: "Other kind", tone: "warn" },
  cordoned: { word: "Cordoned", tone: "warn" },
  draining: { word: "Draining", tone: "warn" },
  lost: { word: "Lost", tone: "bad" },
};

/** "3 full · 1 cordoned": how many nodes have each verdict, most first. */
export function verdictCounts(counts: Readonly<Record<string, number>>): string {
  const some = Object.entries(counts).filter(([, many]) => many > 0);
  some.sort(([, one], [, other]) => other - one);
  return some.map(([verdict, many]) => `${many} ${(VERDICTS[verdict as Verdict]?.word ?? verdict).toLowerCase()}`).join(" · ");
}

/** When a job is expected to start, from now: "in about 4 h". */
export function startWords(expected: Expected, now: number): string {
  if (expected.start === null) return `not within ${shortDuration(expected.until - now)}`;
  const left = expected.start - now;
  return left < 2 ? "now" : `in about ${shortDuration(left)}`;
}

/** How far estimates like this one were off. */
export function errorWords(error: Expected["error"]): string {
  if (error === null) return "no past estimates yet";
  return `half of ${plural(error.jobs, "past estimate")} off by at most ${shortDuration(error.median_seconds)}, nine of ten by ${shortDuration(error.p90_seconds)}`;
}

/** After how many plans something holds: at once, or once slots are vacated. */
export function plansWords(plans: number): string {
  return plans <= 1 ? "at once" : "once slots are vacated";
}

/** Where the worth of a job's next slot and the price end on a bar, in percent: the larger one leaves some room. */
export function worthBar(gain: number): { readonly worth: number; readonly price: number } {
  const most = Math.max(gain, 1) * 1.25;
  return { worth: (gain / most) * 100, price: 100 / most };
}

export interface Reason {
  readonly seq: number;
  readonly time: number;
  readonly rule: string;
  readonly sentence: string;
  /** When the next reason came, or the job got slots; null: it holds still. */
  readonly until: number | null;
}

/** Why a job has waited so far, newest first, from its history. */
export function reasons(events: readonly Event[]): readonly Reason[] {
  const found: Reason[] = [];
  for (const event of events) {
    const last = found.at(-1);
    const ends = event.kind === "waiting" || event.kind === "resize" || event.kind === "state";
    if (last !== undefined && last.until === null && ends) found[found.length - 1] = { ...last, until: event.time };
    if (event.kind !== "waiting") continue;
    const rule = typeof event.data["blocking"] === "string" ? event.data["blocking"] : "";
    found.push({ seq: event.seq, time: event.time, rule, sentence: event.message, until: null });
  }
  return found.reverse();
}
