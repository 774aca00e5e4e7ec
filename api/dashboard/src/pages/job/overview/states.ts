/** A job's states over time, from its history. Pure. */

import type { Event, Job, JobState } from "../../../api/types";

export interface Span {
  readonly state: JobState;
  readonly from: number;
  /** The present for a state that lasts. */
  readonly to: number;
  readonly lasts: boolean;
}

/** In the history a waiting job is PENDING; the wire has WMLA's word for it. */
function stateOf(word: unknown): JobState {
  return (word === "PENDING" ? "PENDING_CRD_SCHEDULER" : word) as JobState;
}

/** One span for each state passed through, oldest first; the last one lasts, or is the end and takes no time. */
export function spans(job: Job, events: readonly Event[], now: number): readonly Span[] {
  const moves = events.filter((event) => event.kind === "state");
  const recorded = moves.map((event) => ({ state: stateOf(event.data["after"]), time: event.time }));
  const starts = recorded[0]?.state === "SUBMITTED" ? recorded : [{ state: "SUBMITTED" as JobState, time: job.created_at }, ...recorded];
  return starts.map(({ state, time }, at) => {
    const next = starts[at + 1]?.time;
    return { state, from: time, to: next ?? Math.max(now, time), lasts: next === undefined };
  });
}

export interface Folded {
  readonly event: Event;
  /** So many checkpoints came right before it, and are not shown. */
  readonly like: number;
}

/** A history newest first, in which checkpoints in a row are one line: the newest of them. */
export function folded(events: readonly Event[]): readonly Folded[] {
  const lines: Folded[] = [];
  for (const event of events) {
    const before = lines.at(-1);
    if (event.kind === "checkpointed" && before?.event.kind === "checkpointed") {
      lines[lines.length - 1] = { event, like: before.like + 1 };
    } else {
      lines.push({ event, like: 0 });
    }
  }
  return lines.reverse();
}
