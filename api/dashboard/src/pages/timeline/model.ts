/**
 * All that the timeline knows: who held which slot, what happened, whose the jobs are.
 *
 * A fetched timeline is loaded, the stream's events are put on top. An event may arrive while an answer is on its way
 * that was read before it: so those that came since the request are applied again after it.
 */

import { type Bar, BarStore } from "../../charts/bars";
import type { FailureFact, ResizeFact } from "../../charts/marks";

interface AllocationIn {
  readonly allocation: number;
  readonly exec_id: string;
  readonly node: string;
  readonly slot: string;
  readonly decided_at: number;
  readonly started_at: number | null;
  readonly released_at: number | null;
}

interface ResizeIn {
  readonly number: number;
  readonly exec_id: string;
  readonly cause: string;
  readonly time: number;
  readonly from_slots: number;
  readonly to_slots: number;
  readonly pause_seconds: number | null;
  readonly recomputed: number | null;
  readonly detail: string | null;
}

interface FailureIn {
  readonly exec_id: string;
  readonly node: string | null;
  readonly slot: string | null;
  readonly time: number;
  readonly kind: string;
  readonly message: string | null;
}

export interface Happened {
  readonly allocations: readonly AllocationIn[];
  readonly resizes: readonly ResizeIn[];
  readonly failures: readonly FailureIn[];
}

export interface TimelineNode {
  readonly name: string;
  readonly health: string;
  readonly health_since?: number | null;
  readonly seen_at: number;
  readonly slots: readonly { readonly slot: string; readonly label: string }[];
}

/** A job as far as this user may know it. */
export interface TimelineJob {
  readonly state: string;
  readonly owner?: string | null;
  readonly app_name?: string | null;
  readonly kind?: "elastic" | "gang";
  /** It was removed: its bars stay, and lead nowhere. */
  readonly removed?: boolean;
}

export interface TimelineAnswer extends Happened {
  readonly now: number;
  readonly earliest?: number | null;
  readonly nodes: readonly TimelineNode[];
  readonly jobs: Readonly<Record<string, TimelineJob>>;
}

export interface JobsChanged {
  readonly items: readonly ({ readonly id: string } & TimelineJob)[];
  readonly removed: readonly string[];
}

export interface NodesChanged {
  readonly items: readonly TimelineNode[];
  readonly removed: readonly string[];
}

/** For so long an event may be needed again. */
const KEPT_MS = 120_000;

export class TimelineModel {
  readonly bars = new BarStore();
  /** Grows with each change. */
  version = 0;
  nodes: readonly TimelineNode[] = [];
  readonly jobs = new Map<string, TimelineJob>();
  /** Seconds that the API's clock is ahead of ours. */
  private ahead = 0;
  private earliestKnown: number | null = null;
  private readonly resizesByKey = new Map<string, ResizeFact>();
  private readonly failuresByKey = new Map<string, FailureFact>();
  private recent: { at: number; run: () => void }[] = [];
  private sorted: { resizes: readonly ResizeFact[]; failures: readonly FailureFact[] } | null = null;
  private readonly watchers = new Set<() => void>();

  /** Seconds since the epoch, by the API's clock. */
  now(ourMs = Date.now()): number {
    return ourMs / 1000 + this.ahead;
  }

  get earliest(): number | null {
    return this.earliestKnown ?? this.bars.earliest;
  }

  /** In the order of time. */
  get resizes(): readonly ResizeFact[] {
    return this.lists().resizes;
  }

  get failures(): readonly FailureFact[] {
    return this.lists().failures;
  }

  /** Whether all processes of the job start together, and keep their slots. */
  isGang(execId: string): boolean {
    return this.jobs.get(execId)?.kind === "gang";
  }

  /** Why the job's page cannot be opened; null: it can. Only its owner and admins see whose a job is. */
  closed(execId: string): string | null {
    const job = this.jobs.get(execId);
    if (job?.removed) return "Removed job";
    return job?.owner ? null : "Another user’s job";
  }

  readonly watch = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  readonly snapshot = (): number => this.version;

  /** Take an answer in place of all that is known; `askedMs` is our clock when it was asked for. */
  load(timeline: TimelineAnswer, askedMs: number, ourMs = Date.now()): void {
    // The answer was read somewhere between asking and now; the shorter the way, the better the clock.
    this.ahead = timeline.now - (askedMs + ourMs) / 2000;
    this.earliestKnown = timeline.earliest ?? null;
    this.nodes = timeline.nodes;
    this.bars.clear();
    this.resizesByKey.clear();
    this.failuresByKey.clear();
    this.jobs.clear();
    for (const [id, job] of Object.entries(timeline.jobs)) this.jobs.set(id, job);
    this.put(timeline);
    for (const { at, run } of this.recent) if (at >= askedMs) run();
    this.changed();
  }

  apply(event: Happened, ourMs = Date.now()): void {
    this.record(ourMs, () => this.put(event));
  }

  /** A removed node goes, unless the chart shows what it once held: as it is with a timeline that is fetched anew. */
  applyNodes(event: NodesChanged, ourMs = Date.now()): void {
    this.record(ourMs, () => {
      const newer = new Map(event.items.map((node) => [node.name, node]));
      const known = this.nodes.map((node) => newer.get(node.name) ?? node);
      const names = new Set(known.map((node) => node.name));
      const removed = new Set(event.removed.filter((name) => !this.bars.has(name)));
      const all = [...known, ...event.items.filter((node) => !names.has(node.name))];
      this.nodes = all.filter((node) => !removed.has(node.name));
    });
  }

  applyJobs(event: JobsChanged, ourMs = Date.now()): void {
    this.record(ourMs, () => {
      for (const job of event.items) this.jobs.set(job.id, job);
      for (const id of event.removed) {
        const job = this.jobs.get(id);
        if (job) this.jobs.set(id, { ...job, removed: true });
      }
    });
  }

  private record(ourMs: number, run: () => void): void {
    this.recent = [...this.recent.filter((each) => each.at > ourMs - KEPT_MS), { at: ourMs, run }];
    run();
    this.changed();
  }

  private put(event: Happened): void {
    this.bars.put(event.allocations.map(barOf));
    for (const each of event.resizes) this.resizesByKey.set(`${each.exec_id} ${each.number}`, resizeOf(each));
    for (const each of event.failures) {
      this.failuresByKey.set(`${each.exec_id} ${each.node} ${each.slot} ${each.time}`, failureOf(each));
    }
    this.sorted = null;
  }

  private lists() {
    const byTime = <T extends { readonly time: number }>(facts: Iterable<T>): T[] =>
      [...facts].sort((one, other) => one.time - other.time);
    return (this.sorted ??= {
      resizes: byTime(this.resizesByKey.values()),
      failures: byTime(this.failuresByKey.values()),
    });
  }

  private changed(): void {
    this.version++;
    for (const watcher of this.watchers) watcher();
  }
}

function barOf(each: AllocationIn): Bar {
  return {
    allocation: each.allocation,
    execId: each.exec_id,
    node: each.node,
    slot: each.slot,
    from: each.decided_at,
    started: each.started_at,
    to: each.released_at,
  };
}

function resizeOf(each: ResizeIn): ResizeFact {
  return {
    number: each.number,
    execId: each.exec_id,
    cause: each.cause,
    time: each.time,
    fromSlots: each.from_slots,
    toSlots: each.to_slots,
    pauseSeconds: each.pause_seconds,
    recomputed: each.recomputed,
    detail: each.detail,
  };
}

function failureOf({ exec_id: execId, node, slot, time, kind, message }: FailureIn): FailureFact {
  return { execId, node, slot, time, kind, message };
}
