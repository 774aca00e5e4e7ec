/** Where the timeline marks what happened: changes of a job's size and failures. Pure. */

import type { Bar, BarStore } from "./bars";
import { laneKey, type Layout } from "./lanes";
import type { XRange } from "./props";

/** A job's size changed. */
export interface ResizeFact {
  readonly number: number;
  readonly execId: string;
  readonly cause: string;
  readonly time: number;
  readonly fromSlots: number;
  readonly toSlots: number;
  readonly pauseSeconds: number | null;
  readonly recomputed: number | null;
  /** null: another user's. */
  readonly detail: string | null;
}

/** Something died. */
export interface FailureFact {
  readonly execId: string;
  readonly node: string | null;
  readonly slot: string | null;
  readonly time: number;
  readonly kind: string;
  /** null: another user's. */
  readonly message: string | null;
}

export type Mark =
  | { readonly kind: "resize"; readonly fact: ResizeFact; readonly x: number; readonly y: number }
  | { readonly kind: "failure"; readonly fact: FailureFact; readonly x: number; readonly y: number };

/** Pixels that two marks on one row keep between them; what comes closer is left out. */
const APART = 11;
/** A resize is marked on bars that are at least this wide: among narrower ones nobody could tell whose it is. */
const WIDE = 30;
/** Decisions and what comes of them are this close in time. */
const CLOSE_SECONDS = 2;

/**
 * The marks of `range`, in pixels of the layout. A resize stands on the topmost row that its job held then, a failure
 * where it happened. What began a job is no resize: there the bar begins.
 */
export function placeMarks(
  layout: Layout, bars: BarStore, resizes: readonly ResizeFact[], failures: readonly FailureFact[],
  range: XRange, width: number,
): Mark[] {
  const scale = width / (range.to - range.from);
  const lastOn = new Map<string, number>();
  const marks: Mark[] = [];
  const free = (row: string, x: number): boolean => {
    if (x - (lastOn.get(row) ?? Number.NEGATIVE_INFINITY) < APART) return false;
    lastOn.set(row, x);
    return true;
  };
  const shown = (time: number): boolean => time >= range.from && time <= range.to;
  for (const fact of failures) {
    if (!shown(fact.time)) continue;
    const y = failureHeight(layout, bars, fact);
    const x = (fact.time - range.from) * scale;
    if (y !== null && free(`failure ${y}`, x)) marks.push({ kind: "failure", fact, x, y });
  }
  for (const fact of resizes) {
    if (!shown(fact.time) || fact.fromSlots === 0 || fact.fromSlots === fact.toSlots) continue;
    const place = topRow(layout, bars.job(fact.execId), fact.time);
    if (!place || ((place.bar.to ?? range.to) - place.bar.from) * scale < WIDE) continue;
    const x = (fact.time - range.from) * scale;
    if (free(`resize ${place.top}`, x)) marks.push({ kind: "resize", fact, x, y: place.top });
  }
  return marks;
}

function failureHeight(layout: Layout, bars: BarStore, fact: FailureFact): number | null {
  if (fact.node !== null && fact.slot !== null) {
    const lane = layout.lanes.get(laneKey(fact.node, fact.slot));
    if (lane) return lane.top + lane.height / 2;
  }
  const held = bars.job(fact.execId).filter((bar) => fact.node === null || bar.node === fact.node);
  const place = topRow(layout, held, fact.time);
  if (place) return place.top + (layout.groups[0]?.lanes[0]?.height ?? 0) / 2;
  const group = layout.groups.find((each) => each.node === fact.node);
  return group ? group.rows - 8 : null;
}

/** The topmost of the rows that `bars` held at `time`, or nearly. */
function topRow(layout: Layout, bars: readonly Bar[], time: number): { top: number; bar: Bar } | null {
  let found: { top: number; bar: Bar } | null = null;
  for (const bar of bars) {
    if (bar.from > time + CLOSE_SECONDS) break;
    if (bar.to !== null && bar.to < time - CLOSE_SECONDS) continue;
    const lane = layout.lanes.get(laneKey(bar.node, bar.slot));
    if (lane && (found === null || lane.top < found.top)) found = { top: lane.top, bar };
  }
  return found;
}

/** The mark under the pointer. */
export function markAt(marks: readonly Mark[], x: number, y: number, reach = 8): Mark | null {
  let best: Mark | null = null;
  let least = reach;
  for (const mark of marks) {
    const away = Math.hypot(mark.x - x, mark.y - y);
    if (away <= least) [best, least] = [mark, away];
  }
  return best;
}
