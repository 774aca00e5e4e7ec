/** Fetches the timeline as far back as it is looked at, and keeps it live. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState, useSyncExternalStore } from "react";

import { answer, client } from "../../api/client";
import { keys } from "../../api/keys";
import { useStreamEvent } from "../../api/stream/live";
import type { XRange } from "../../charts/props";
import { type TimelineAnswer, TimelineModel } from "./model";

export interface TimelineData {
  readonly model: TimelineModel;
  readonly version: number;
  /** Nothing is known yet. */
  readonly waiting: boolean;
  /** Something is known, and more of the past is on its way. */
  readonly fetching: boolean;
  readonly error: unknown;
  readonly retry: () => void;
}

/** `wanted` is the stretch that is shown; "all" from the beginning. */
export function useTimeline(wanted: (model: TimelineModel) => XRange, all: boolean): TimelineData {
  const [model] = useState(() => new TimelineModel());
  const [since, setSince] = useState(() => (all ? 0 : backFrom(wanted(model))));

  const { data, error, isFetching, refetch } = useQuery({
    queryKey: keys.timeline(String(since)),
    queryFn: async ({ signal }) => {
      const askedMs = Date.now();
      const timeline: TimelineAnswer = await answer(client.GET("/api/v1/timeline", { params: { query: { since } }, signal }));
      return { timeline, askedMs, ourMs: Date.now() };
    },
    structuralSharing: false,
    gcTime: 0,
  });

  useEffect(() => {
    if (data) model.load(data.timeline, data.askedMs, data.ourMs);
  }, [data, model]);

  useStreamEvent("timeline", (event) => model.apply(event));
  useStreamEvent("nodes", (event) => model.applyNodes(event));
  useStreamEvent("jobs", (event) => model.applyJobs(event));

  const version = useSyncExternalStore(model.watch, model.snapshot);

  // Looking further back than what was fetched: fetch more, and some beyond it.
  const from = wanted(model).from;
  useEffect(() => {
    if (all) setSince(0);
    else if (from < since) setSince(backFrom(wanted(model)));
  }, [all, from, since, model, wanted]);

  return { model, version, waiting: version === 0 && error === null, fetching: isFetching, error, retry: () => void refetch() };
}

/** A quarter of a range more than is shown, so that a small step back fetches nothing. */
function backFrom({ from, to }: XRange): number {
  const span = to - from;
  return Math.max(0, Math.floor(from - span / 4));
}
