/**
 * The one event stream of this page: /api/v1/stream.
 *
 * The browser keeps the cursor and reconnects by itself; where it gives up (the API answered with an error) this
 * opens another one. While it is not live, everything on the page is fetched again every five seconds.
 */

import { type Query, type QueryClient, type QueryKey, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, useSyncExternalStore } from "react";

import { type JobFilter, keys } from "../keys";
import { meQuery } from "../session";
import type { Job, Node, Timeline } from "../types";
import { atFirst, broken, checked, type Connection, received } from "./connection";
import { type JobPages, type JobsEvent, patchJobs, patchNodes } from "./patch";
import { Throttle } from "./throttle";

/** What each topic carries. */
export interface Topics {
  jobs: JobsEvent;
  nodes: { readonly items: readonly Node[]; readonly removed: readonly string[] };
  timeline: Pick<Timeline, "allocations" | "resizes" | "failures">;
  /** The cursor is taken, or was too old to go on from: fetch again what you hold. */
  hello: null;
  reset: null;
}

export type Topic = keyof Topics;
type Handler<T extends Topic> = (event: Topics[T]) => void;

const POLL_MS = 5_000;
const REOPEN_MS = 2_000;
const RELATED_MS = 1_500;

class Live {
  #source: EventSource | null = null;
  #queries: QueryClient | null = null;
  #connection: Connection = atFirst(Date.now());
  #watchers = new Set<() => void>();
  #handlers = new Map<Topic, Set<Handler<Topic>>>();
  #timers: number[] = [];
  #reopen = 0;
  #cursor = "";
  #related = new Throttle(RELATED_MS);
  /** Hashes of questions whose answer on its way may have been read before newer events of the stream. */
  #overtaken = new Set<string>();
  #unwatch: (() => void) | null = null;

  start(queries: QueryClient): void {
    this.stop();
    this.#queries = queries;
    this.#cursor = "";
    this.#show(atFirst(Date.now()));
    this.#unwatch = queries.getQueryCache().subscribe((event) => {
      if (event.type === "updated" && event.action.type === "success" && !event.action.manual) this.#answered(event.query);
    });
    this.#open();
    this.#timers = [
      window.setInterval(() => this.#show(checked(this.#connection, Date.now())), 1_000),
      window.setInterval(() => this.#poll(), POLL_MS),
    ];
  }

  stop(): void {
    this.#source?.close();
    this.#source = null;
    for (const timer of this.#timers) window.clearInterval(timer);
    window.clearTimeout(this.#reopen);
    this.#unwatch?.();
    this.#overtaken.clear();
    this.#related.clear();
  }

  readonly watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };

  readonly connection = (): Connection => this.#connection;

  on<T extends Topic>(topic: T, handler: Handler<T>): () => void {
    const set = this.#handlers.get(topic) ?? new Set();
    this.#handlers.set(topic, set.add(handler as Handler<Topic>));
    return () => set.delete(handler as Handler<Topic>);
  }

  #open(): void {
    // The browser sends the cursor itself when it reconnects; a stream that this opens has it in its address.
    const after = this.#cursor === "" ? "" : `?after=${encodeURIComponent(this.#cursor)}`;
    const source = new EventSource(`/api/v1/stream${after}`);
    this.#source = source;
    const subscribe = <T extends Topic>(topic: T, take: Handler<T>): void =>
      source.addEventListener(topic, (message: MessageEvent<string>) => {
        this.#received();
        this.#cursor = message.lastEventId;
        const event = (topic === "hello" || topic === "reset" ? null : JSON.parse(message.data)) as Topics[T];
        take(event);
        for (const handler of this.#handlers.get(topic) ?? []) handler(event);
      });
    subscribe("hello", () => this.#outdate());
    subscribe("reset", () => this.#outdate());
    subscribe("jobs", (event) => this.#jobs(event));
    subscribe("nodes", (event) => this.#nodes(event.items, event.removed));
    subscribe("timeline", (event) => this.#timeline(event));
    source.addEventListener("beat", () => this.#received());
    source.addEventListener("bye", () => this.#show(broken(this.#connection)));
    source.addEventListener("open", () => this.#received());
    source.addEventListener("error", () => this.#broken(source));
  }

  #received(): void {
    this.#show(received(this.#connection, Date.now()));
  }

  #broken(source: EventSource): void {
    this.#show(broken(this.#connection));
    if (source.readyState !== EventSource.CLOSED || source !== this.#source) return;
    // Refused with an error: perhaps the session has ended, which the question who I am finds out, or the cursor is bad.
    this.#cursor = "";
    window.clearTimeout(this.#reopen);
    this.#reopen = window.setTimeout(() => this.#open(), REOPEN_MS);
    void this.#queries?.invalidateQueries({ queryKey: meQuery.queryKey });
  }

  #show(connection: Connection): void {
    if (connection === this.#connection) return;
    this.#connection = connection;
    for (const watcher of this.#watchers) watcher();
  }

  #poll(): void {
    if (this.#connection.phase !== "live" && !document.hidden) this.#outdate();
  }

  #outdate(): void {
    void this.#queries?.invalidateQueries({ queryKey: keys.live });
  }

  #jobs(event: JobsEvent): void {
    const queries = this.#queries;
    if (!queries) return;
    for (const [key, data] of queries.getQueriesData<JobPages>({ queryKey: keys.jobLists })) {
      this.#overtake(key);
      if (!data) continue;
      const patched = patchJobs(data, key[2] as JobFilter, event);
      if (patched.data !== data) queries.setQueryData(key, patched.data);
      if (patched.stale) this.#related.run("jobs", () => void queries.invalidateQueries({ queryKey: keys.jobLists }));
    }
    for (const id of event.removed) void queries.invalidateQueries({ queryKey: keys.job(id) });
    for (const job of event.items) {
      this.#overtake(keys.job(job.id));
      queries.setQueryData<Job>(keys.job(job.id), (before) => (before ? job : before));
      this.#outdateRelated(job.id);
    }
  }

  #nodes(items: readonly Node[], removed: readonly string[]): void {
    this.#overtake(keys.nodes);
    this.#queries?.setQueryData<readonly Node[]>(keys.nodes, (before) => before && patchNodes(before, items, removed));
  }

  #timeline(event: Topics["timeline"]): void {
    const touched = [...event.allocations, ...event.resizes, ...event.failures].map((each) => each.exec_id);
    for (const id of new Set(touched)) this.#outdateRelated(id);
  }

  /** Something newer has just come: an answer that is on its way is used, and is asked for once more. */
  #overtake(key: QueryKey): void {
    const query = this.#queries?.getQueryCache().find({ queryKey: key, exact: true });
    if (query?.state.fetchStatus === "fetching") this.#overtaken.add(query.queryHash);
  }

  #answered(query: Query): void {
    if (!this.#overtaken.delete(query.queryHash)) return;
    this.#related.run(query.queryHash, () => void this.#queries?.invalidateQueries({ queryKey: query.queryKey, exact: true }));
  }

  /** A job's history is fetched again soon, where it is shown, and not for every event. */
  #outdateRelated(id: string): void {
    const queries = this.#queries;
    const key = keys.jobRelated(id);
    if (queries?.getQueryCache().find({ queryKey: key, exact: false }) === undefined) return;
    this.#related.run(id, () => void queries.invalidateQueries({ queryKey: key }));
  }
}

export const live = new Live();

/** Listen for as long as this is on the screen. */
export function useLiveStream(): void {
  const queries = useQueryClient();
  useEffect(() => {
    live.start(queries);
    return () => live.stop();
  }, [queries]);
}

export function useConnection(): Connection {
  return useSyncExternalStore(live.watch, live.connection);
}

/** Subscribe to one topic of the stream. The handler may change from one render to the next. */
export function useStreamEvent<T extends Topic>(topic: T, handler: Handler<T>): void {
  const current = useRef(handler);
  useEffect(() => {
    current.current = handler;
  });
  useEffect(() => live.on(topic, (event) => current.current(event)), [topic]);
}

/** The time, renewed every so often: for ages and running durations. Seconds since the epoch. */
export function useNow(everyMs = 1_000): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now() / 1000), everyMs);
    return () => window.clearInterval(timer);
  }, [everyMs]);
  return now;
}
