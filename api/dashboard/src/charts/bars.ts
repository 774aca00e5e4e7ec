/** Who held which slot and when, kept so that a chart of any stretch is quick. */

import { laneKey } from "./lanes";
import type { XRange } from "./props";

/** One slot held by one job for a while. */
export interface Bar {
  readonly allocation: number;
  readonly execId: string;
  readonly node: string;
  readonly slot: string;
  /** When the slot was given; the engine starts a little later. */
  readonly from: number;
  readonly started: number | null;
  /** null: still held. */
  readonly to: number | null;
}

/** What is drawn in one place of a row. */
export interface Piece {
  readonly x: number;
  readonly width: number;
  /** The bar, or the longest of those that fall into less than a pixel each. */
  readonly bar: Bar;
  readonly crowd: number;
}

/** All bars that are known, by row and by job. Bars are put in as they come, in any order, again and again. */
export class BarStore {
  /** Grows with each change; a chart of the same version is still right. */
  version = 0;
  private readonly byAllocation = new Map<number, Bar>();
  private readonly byLane = new Map<string, Bar[]>();
  private readonly byJob = new Map<string, Bar[]>();

  get size(): number {
    return this.byAllocation.size;
  }

  /** Take in bars; one that is known already is replaced by what is now known of it. */
  put(bars: Iterable<Bar>): void {
    const unsorted = new Set<Bar[]>();
    for (const bar of bars) {
      const known = this.byAllocation.get(bar.allocation);
      this.byAllocation.set(bar.allocation, bar);
      for (const list of [listOf(this.byLane, laneKey(bar.node, bar.slot)), listOf(this.byJob, bar.execId)]) {
        if (known) list[list.indexOf(known)] = bar;
        else list.push(bar);
        unsorted.add(list);
      }
      this.version++;
    }
    for (const list of unsorted) list.sort((one, other) => one.from - other.from);
  }

  clear(): void {
    this.byAllocation.clear();
    this.byLane.clear();
    this.byJob.clear();
    this.version++;
  }

  lane(key: string): readonly Bar[] {
    return this.byLane.get(key) ?? [];
  }

  job(execId: string): readonly Bar[] {
    return this.byJob.get(execId) ?? [];
  }

  /** Whether a bar of this node is known. */
  has(node: string): boolean {
    return [...this.byLane.values()].some((bars) => bars[0]?.node === node);
  }

  get earliest(): number | null {
    let earliest: number | null = null;
    for (const bars of this.byLane.values()) {
      const first = bars[0];
      if (first && (earliest === null || first.from < earliest)) earliest = first.from;
    }
    return earliest;
  }

  /** Bars that touch `range`, newest first: what the table twin shows. */
  between(range: XRange): Bar[] {
    const found: Bar[] = [];
    for (const bars of this.byLane.values()) {
      for (let at = firstAfter(bars, range.from); at < bars.length; at++) {
        const bar = bars[at] as Bar;
        if (bar.from > range.to) break;
        found.push(bar);
      }
    }
    return found.sort((one, other) => other.from - one.from || other.allocation - one.allocation);
  }
}

function listOf(map: Map<string, Bar[]>, key: string): Bar[] {
  let list = map.get(key);
  if (!list) map.set(key, (list = []));
  return list;
}

/**
 * The first bar of a row that ends after `time`. A slot has one holder at a time, so where the bars of a row are
 * in the order of their beginnings, so are their ends.
 */
function firstAfter(bars: readonly Bar[], time: number): number {
  let low = 0;
  let high = bars.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (((bars[middle] as Bar).to ?? Number.POSITIVE_INFINITY) <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * A row's bars as pixels of a chart `width` wide that shows `range`; clipped to it, an open bar ending at `now`.
 * Bars of less than a pixel that lie in the same one become one piece.
 */
export function pieces(bars: readonly Bar[], range: XRange, width: number, now: number): Piece[] {
  const scale = width / (range.to - range.from);
  const found: Piece[] = [];
  for (let at = firstAfter(bars, range.from); at < bars.length; at++) {
    const bar = bars[at] as Bar;
    if (bar.from >= range.to) break;
    const x = Math.max(0, (bar.from - range.from) * scale);
    const end = Math.min(width, ((bar.to ?? Math.max(now, bar.from)) - range.from) * scale);
    const piece = { x, width: Math.max(0, end - x), bar, crowd: 1 };
    const before = found[found.length - 1];
    if (before && before.width < 1 && piece.width < 1 && end - before.x < 1) {
      const longer = lasting(before.bar, now) >= lasting(bar, now) ? before.bar : bar;
      found[found.length - 1] = { x: before.x, width: end - before.x, bar: longer, crowd: before.crowd + 1 };
    } else {
      found.push(piece);
    }
  }
  return found;
}

const lasting = (bar: Bar, now: number): number => (bar.to ?? now) - bar.from;

/** The bar of a row at `time`, or the nearest one within `reach` seconds: thin bars can be hit, too. */
export function barAt(bars: readonly Bar[], time: number, reach: number, now: number): Bar | null {
  const first = firstAfter(bars, time - reach);
  let best: Bar | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (let at = first; at < bars.length; at++) {
    const bar = bars[at] as Bar;
    if (bar.from > time + reach) break;
    const away = Math.max(bar.from - time, time - (bar.to ?? Math.max(now, bar.from)), 0);
    if (away < least && away <= reach) [best, least] = [bar, away];
  }
  return best;
}
