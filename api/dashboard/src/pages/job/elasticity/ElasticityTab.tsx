/**
 * How a job's size changed, and that its training did not mind: workers, loss and throughput on one axis, with a mark
 * for each resize. The axis and the stretch shown stand in the address.
 */

import { useQuery } from "@tanstack/react-query";
import { Clock3, Footprints, ZoomOut } from "lucide-react";
import { useMemo } from "react";
import { useSearchParams } from "react-router";

import { allocationsQuery, metricsQuery, resizesQuery } from "../../../api/jobs";
import { useNow } from "../../../api/stream/live";
import { isOver, type Job } from "../../../api/types";
import type { ChartMark, XRange } from "../../../charts/props";
import { TimeSeries } from "../../../charts/TimeSeries";
import { Button } from "../../../components/Button";
import { EmptyState } from "../../../components/EmptyState";
import { Panel } from "../../../components/Panel";
import { ProblemNote } from "../../../components/ProblemNote";
import { Segments } from "../../../components/Segments";
import { Skeleton } from "../../../components/Skeleton";
import { marks, metricCharts, sizesByTime, wholeRange, workersByStep, type XKind } from "./curves";
import styles from "./Elasticity.module.css";
import { Resizes } from "./Resizes";
import { ResizeTotals } from "./ResizeTotals";

export function ElasticityTab({ job }: { readonly job: Job }) {
  const [search, setSearch] = useSearchParams();
  const kind: XKind = search.get("x") === "step" ? "step" : "time";
  const zoom = rangeOf(search);
  const change = (values: Record<string, string | null>) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        for (const [name, value] of Object.entries(values)) {
          if (value === null) next.delete(name);
          else next.set(name, value);
        }
        return next;
      },
      { replace: true },
    );

  const resizes = useQuery(resizesQuery(job.id));
  const failed = resizes.error;
  if (failed && !resizes.data) return <ProblemNote error={failed} onRetry={() => void resizes.refetch()} />;
  if (!resizes.data) return <Skeleton lines={8} />;
  if (resizes.data.items.length === 0) {
    return (
      <Panel>
        <EmptyState icon={Footprints} title="It has not held a slot yet" command={`edt get ${job.id}`}>
          {job.waiting?.reason ?? "Its size is drawn here from its first slot on."}
        </EmptyState>
      </Panel>
    );
  }
  return (
    <div className={styles.tab}>
      <Panel
        title="Size and training"
        tools={
          <>
            {zoom && (
              <Button size="small" icon={ZoomOut} onClick={() => change({ from: null, to: null })}>
                Show all
              </Button>
            )}
            <Segments
              label="Axis"
              value={kind}
              onChange={(next) => change({ x: next === "step" ? "step" : null, from: null, to: null })}
              choices={[
                { value: "time", label: "Time", icon: Clock3 },
                { value: "step", label: "Steps", icon: Footprints },
              ]}
            />
          </>
        }
      >
        <Charts
          job={job}
          kind={kind}
          zoom={zoom}
          onResize={(number) => change({ resize: String(number) })}
          onZoom={(range) => change({ from: range && String(range.from), to: range && String(range.to) })}
        />
      </Panel>
      <ResizeTotals job={job} resizes={resizes.data.items} />
      <Resizes
        resizes={resizes.data.items}
        opened={Number(search.get("resize")) || null}
        onOpen={(number) => change({ resize: number === null ? null : String(number) })}
      />
    </div>
  );
}

function Charts({
  job,
  kind,
  zoom,
  onResize,
  onZoom,
}: {
  readonly job: Job;
  readonly kind: XKind;
  readonly zoom: XRange | null;
  readonly onResize: (number: number) => void;
  readonly onZoom: (range: XRange | null) => void;
}) {
  const over = isOver(job.state);
  const now = useNow(over ? 3_600_000 : 1_000);
  const metrics = useQuery(metricsQuery(job.id)).data;
  const allocations = useQuery(allocationsQuery(job.id)).data?.items;
  const resizes = useQuery(resizesQuery(job.id)).data?.items;
  const whole = wholeRange(kind, job, metrics, now);
  const flags = useMemo(() => marks(resizes ?? [], kind), [resizes, kind]);
  const sizes = useMemo(
    () => (kind === "time" && allocations ? sizesByTime(allocations, whole.from, whole.to, metrics?.time) : null),
    [kind, allocations, whole.from, whole.to, metrics?.time],
  );

  const steps = useMemo(
    () => (kind === "step" && metrics ? workersByStep(resizes ?? [], metrics) : null),
    [kind, metrics, resizes],
  );
  const x = metrics ? (kind === "time" ? metrics.time : metrics.step) : [];
  const shared = {
    xKind: kind === "time" ? ("time" as const) : ("number" as const),
    xLabel: kind === "time" ? "Time" : "Step",
    sync: `${job.id} ${kind}`,
    range: zoom ?? whole,
    onRange: onZoom,
    marks: flags,
    onMark: ({ id }: ChartMark) => id !== undefined && onResize(id),
  };
  const charts = useMemo(() => (metrics ? metricCharts(metrics, kind) : []), [metrics, kind]);
  return (
    <div className={styles.charts}>
      <TimeSeries
        {...shared}
        title="Workers"
        height={132}
        y={{ min: 0, whole: true }}
        x={sizes?.x ?? steps?.x ?? []}
        series={
          sizes
            ? [
                { label: "Slots held", values: sizes.held, step: true, colour: "muted" },
                { label: "Workers", values: sizes.workers, step: true, fill: true, colour: { job: job.id } },
              ]
            : [{ label: "Workers", values: steps?.workers ?? [], step: true, fill: true, colour: { job: job.id } }]
        }
        empty="No slot yet."
      />
      {charts.length === 0 && (
        <TimeSeries {...shared} title="Loss" x={[]} series={[]} empty="The training has reported no loss yet." />
      )}
      {charts.map((chart, place) => (
        <TimeSeries
          key={chart.name}
          {...shared}
          title={chart.title}
          height={place === 0 ? 190 : 130}
          x={chart.x}
          series={chart.series}
          empty={`The training has reported no ${chart.name} yet.`}
        />
      ))}
      <TimeSeries
        {...shared}
        title="Throughput"
        height={120}
        y={{ min: 0 }}
        x={x}
        series={[{ label: "Samples per second", values: metrics?.samples_per_second ?? [], colour: "third" }]}
        empty="The training has reported no throughput yet."
      />
    </div>
  );
}

function rangeOf(search: URLSearchParams): XRange | null {
  const [from, to] = [Number(search.get("from") ?? NaN), Number(search.get("to") ?? NaN)];
  return Number.isFinite(from) && Number.isFinite(to) && to > from ? { from, to } : null;
}
