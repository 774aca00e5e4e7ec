/** A chart's props as uPlot takes them. Draws on uPlot's canvas; keeps nothing. */

import type uPlot from "uplot";

import { colourName, dashOf, type ReadColour, veil } from "./colours";
import { minMax } from "./downsample";
import type { ChartMark, TimeSeriesProps, XRange } from "./props";
import { compact, niceBounds, niceStep, powerBounds, powerTicks, spansPowers, timeTicks } from "./ticks";

/** More points than a screen is wide cost time and show nothing. */
const MOST_POINTS = 2_400;
/** Pixels for the numbers of the axes: the same in every chart, so that charts below each other are in line. */
const LEFT = 52;
const RIGHT = 54;

/** The columns to draw, thinned where there are more than can be seen. */
export function plotData(props: TimeSeriesProps): uPlot.AlignedData {
  const columns = props.series.map((series) => series.values);
  const kept = minMax(props.x, columns, MOST_POINTS);
  if (kept.length === props.x.length) return [props.x.slice(), ...columns.map((column) => column.slice())] as uPlot.AlignedData;
  const pick = <T>(column: readonly T[]): T[] => kept.map((at) => column[at] as T);
  return [pick(props.x), ...columns.map(pick)] as uPlot.AlignedData;
}

/** The stretch of x that is shown. */
export function shownRange(props: TimeSeriesProps): XRange {
  if (props.range) return props.range;
  const from = props.x[0] ?? 0;
  const to = props.x.at(-1) ?? from + 1;
  return to > from ? { from, to } : { from: from - 0.5, to: to + 0.5 };
}

export interface PlotEvents {
  /** The props as they are now: uPlot asks again and again, and is not made anew for new points. */
  readonly props: () => TimeSeriesProps;
  /** The index under the cursor in uPlot's data, or null. */
  readonly onCursor: (index: number | null, left: number) => void;
}

export function plotOptions(
  props: TimeSeriesProps, width: number, height: number, colour: ReadColour, events: PlotEvents, steps: uPlot.Series.PathBuilder,
): uPlot.Options {
  const axis = (side: "left" | "right"): uPlot.Axis => ({
    scale: side,
    side: side === "left" ? 3 : 1,
    show: side === "left" || hasRight(props),
    stroke: colour("--text-3"),
    font: `11px ${colour("--font")}`,
    size: side === "left" ? LEFT : RIGHT,
    gap: 6,
    ticks: { show: false },
    grid: side === "left" ? { stroke: colour("--line"), width: 1 } : { show: false },
    splits: (_, __, min, max) =>
      inPowers(props, side) ? powerTicks(min, max) : evenly(min, max, side === "left" && props.y?.whole === true),
    filter: (_, splits) => splits, // of powers of ten uPlot would name one alone
    values: (_, splits) => splits.map((split) => valueFormat(props, side)(split)),
  });
  return {
    width,
    height,
    // The same room at the right in all charts that have no axis there, so that one moment is one line down all of them.
    padding: [props.marks ? 20 : 8, hasRight(props) ? 0 : 14, 0, 0],
    legend: { show: false },
    cursor: {
      x: true,
      y: false,
      points: { size: 7 },
      drag: { x: props.onRange !== undefined, y: false, setScale: false },
      ...(props.sync ? { sync: { key: props.sync, setSeries: false } } : {}),
    },
    scales: {
      x: { time: false, range: () => { const range = shownRange(events.props()); return [range.from, range.to]; } },
      left: scale(inPowers(props, "left"), () => events.props().y ?? {}),
      right: scale(inPowers(props, "right"), () => ({})),
    },
    axes: [
      {
        stroke: colour("--text-3"),
        font: `11px ${colour("--font")}`,
        size: 28,
        gap: 6,
        grid: { show: false },
        ticks: { stroke: colour("--line-strong"), width: 1, size: 4 },
        splits: (plot, _, min, max) => xTicks(events.props(), min, max, plot.width).map((tick) => tick.at),
        values: (plot, splits) => {
          const { from, to } = shownRange(events.props());
          const labels = new Map(xTicks(events.props(), from, to, plot.width).map((tick) => [tick.at, tick.label]));
          return splits.map((split) => labels.get(split) ?? "");
        },
      },
      axis("left"),
      axis("right"),
    ],
    series: [
      {},
      ...props.series.map((series): uPlot.Series => {
        const stroke = colour(colourName(series.colour ?? "accent"));
        return {
          scale: series.axis ?? "left",
          label: series.label,
          stroke,
          width: 1.75,
          dash: dashOf(series.colour ?? "accent"),
          spanGaps: false,
          points: { show: series.dots === true || props.x.length < 2, ...(series.dots && { size: 6, fill: stroke }) },
          ...(series.step ? { paths: steps } : {}),
          ...(series.fill ? { fill: veil(stroke, 0.12) } : {}),
        };
      }),
    ],
    hooks: {
      draw: [(plot) => drawMarks(plot, events.props().marks ?? [], colour)],
      setCursor: [(plot) => events.onCursor(plot.cursor.idx ?? null, plot.cursor.left ?? -1)],
      setSelect: [
        (plot) => {
          const { left, width: wide } = plot.select;
          if (wide > 3) events.props().onRange?.({ from: plot.posToVal(left, "x"), to: plot.posToVal(left + wide, "x") });
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

function hasRight(props: TimeSeriesProps): boolean {
  return props.series.some((series) => series.axis === "right");
}

/** How a value of this axis is written: as its first series says. */
export function valueFormat(props: TimeSeriesProps, side: "left" | "right"): (value: number) => string {
  return props.series.find((series) => (series.axis ?? "left") === side)?.format ?? compact;
}

/** Whether an axis counts in powers of ten, because its values do; never one whose bounds are given. */
export function inPowers(
  { series, y }: { readonly series: TimeSeriesProps["series"]; readonly y?: TimeSeriesProps["y"] | undefined },
  side: "left" | "right",
): boolean {
  if (side === "left" && y !== undefined) return false;
  return spansPowers(series.filter((each) => (each.axis ?? "left") === side).flatMap((each) => each.values));
}

function scale(powers: boolean, fixed: () => NonNullable<TimeSeriesProps["y"]>): uPlot.Scale {
  if (!powers) return { range: (_, low, high) => bounds(low, high, fixed()) };
  return { distr: 3, log: 10, range: (_, low, high) => powerBounds(low ?? 1, high ?? 10) };
}

function bounds(low: number | null, high: number | null, fixed: NonNullable<TimeSeriesProps["y"]>): [number, number] {
  const { min, max } = niceBounds(low ?? Number.POSITIVE_INFINITY, high ?? Number.NEGATIVE_INFINITY, fixed);
  return [min, max];
}

function evenly(min: number, max: number, whole: boolean): number[] {
  const step = whole ? Math.max(1, Math.round(niceStep(max - min, 4))) : niceStep(max - min, 4);
  const count = Math.floor((max - min) / step + 1e-9);
  return Array.from({ length: count + 1 }, (_, at) => Number((min + at * step).toPrecision(12)));
}

function xTicks(props: TimeSeriesProps, from: number, to: number, width: number): { at: number; label: string }[] {
  if (props.xKind !== "number") return timeTicks({ from, to }, width);
  const step = Math.max(niceStep(to - from, Math.max(2, width / 90)), 1e-9);
  const first = Math.ceil(from / step - 1e-9) * step;
  return Array.from({ length: Math.max(0, Math.floor((to - first) / step + 1e-9)) + 1 }, (_, at) => {
    const value = Number((first + at * step).toPrecision(12));
    return { at: value, label: compact(value) };
  });
}

/** The colour and the sign of each kind of mark. */
export const MARK_LOOKS: Record<ChartMark["kind"], { colour: string; sign: string; word: string }> = {
  grow: { colour: "--good-fill", sign: "▲", word: "Grow" },
  shrink: { colour: "--warn-fill", sign: "▼", word: "Shrink" },
  failure: { colour: "--bad-fill", sign: "✕", word: "Failure" },
  event: { colour: "--calm-fill", sign: "●", word: "Event" },
};

function drawMarks(plot: uPlot, marks: readonly ChartMark[], colour: ReadColour): void {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  let free = Number.NEGATIVE_INFINITY;
  ctx.save();
  ctx.font = `${10.5 * ratio}px ${colour("--font")}`;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left"; // an axis leaves its own behind
  for (const mark of [...marks].sort((one, other) => one.at - other.at)) {
    const x = plot.valToPos(mark.at, "x", true);
    if (x < bbox.left - 1 || x > bbox.left + bbox.width + 1) continue;
    const look = MARK_LOOKS[mark.kind];
    ctx.strokeStyle = colour(look.colour);
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.globalAlpha = 0.75;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.globalAlpha = 1;
    const text = `${look.sign} ${mark.label}`;
    const wide = ctx.measureText(text).width;
    const left = Math.min(Math.max(bbox.left, x - wide / 2), bbox.left + bbox.width - wide);
    // Labels that would lie on each other are left out; the mark's line is there, and hovering it says all.
    const crowded = left < free;
    ctx.fillStyle = colour(crowded ? look.colour : "--text-2");
    if (!crowded) ctx.fillText(text, left, bbox.top - 3 * ratio);
    else ctx.fillRect(x - ratio, bbox.top - 6 * ratio, 2 * ratio, 4 * ratio);
    if (!crowded) free = left + wide + 8 * ratio;
  }
  ctx.restore();
}
