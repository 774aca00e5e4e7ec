/**
 * Lines over time or steps, with marks, on uPlot.
 *
 * The values under the cursor stand in the legend; charts of one `sync` key move their cursors together. "Show as
 * table" shows the same numbers to those who cannot see a canvas, or want to read them.
 */

import "uplot/dist/uPlot.min.css";

import { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";

import { useTheme } from "../app/theme";
import { colourName, readColours } from "./colours";
import { timestamp, timestampUtc } from "./timestamps";
import { inPowers, MARK_LOOKS, plotData, plotOptions, shownRange } from "./plot";
import type { ChartColour, ChartMark, TimeSeriesProps } from "./props";
import { SeriesTable } from "./SeriesTable";
import { compact } from "./ticks";
import { TableToggle } from "./TableToggle";
import styles from "./TimeSeries.module.css";

/** A mark answers to the pointer this many pixels around it. */
const MARK_REACH = 6;

/** Which axes count in powers of ten. */
interface Powers {
  readonly left: boolean;
  readonly right: boolean;
}

interface Cursor {
  readonly index: number;
  readonly mark: ChartMark | null;
  readonly left: number;
}

export function TimeSeries(props: TimeSeriesProps) {
  const heading = useId();
  const [asTable, setAsTable] = useState(false);
  const [cursor, setCursor] = useState<Cursor | null>(null);
  const nothing = props.x.length === 0;
  const { series, y } = props;
  // Sorts all values: once for each of them that comes, not for each move of the pointer.
  const powers = useMemo(() => ({ left: inPowers({ series, y }, "left"), right: inPowers({ series, y }, "right") }), [series, y]);
  return (
    <figure className={styles.chart} aria-labelledby={heading}>
      <div className={styles.head}>
        <h3 id={heading} className={styles.title}>
          {props.title}
        </h3>
        <Legend props={props} cursor={cursor} powers={powers} />
        <TableToggle of={props.title} on={asTable} onChange={setAsTable} />
      </div>
      {nothing ? (
        <p className={styles.empty} role="note">{props.empty ?? "No point yet."}</p>
      ) : asTable ? (
        <SeriesTable {...props} />
      ) : (
        <Plot props={props} powers={powers} onCursor={setCursor} mark={cursor?.mark ?? null} left={cursor?.left ?? 0} />
      )}
    </figure>
  );
}

function Plot(
  { props, powers, onCursor, mark, left }: {
    props: TimeSeriesProps; powers: Powers; onCursor: (cursor: Cursor | null) => void; mark: ChartMark | null; left: number;
  },
) {
  const theme = useTheme();
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const current = useRef(props);
  useLayoutEffect(() => {
    current.current = props;
  });
  const [width, setWidth] = useState(0);
  const height = (props.height ?? 180) + 28;

  useLayoutEffect(() => {
    const element = host.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    observer.observe(element);
    setWidth(Math.floor(element.clientWidth));
    return () => observer.disconnect();
  }, []);

  const moveCursor = useCallback((index: number | null, at: number) => {
    const made = plot.current;
    if (index === null || at < 0 || !made) {
      onCursor(null);
      return;
    }
    onCursor({ index, mark: markNear(made, current.current.marks ?? [], at), left: at + made.bbox.left / devicePixelRatio });
  }, [onCursor]);

  // Made anew only for what uPlot cannot change: which lines there are and how they look.
  const looks = JSON.stringify([
    props.series.map(({ label, colour, step, fill, dots, axis }) => [label, colour, step, fill, dots, axis]),
    props.sync, props.xKind, props.onRange !== undefined, props.marks !== undefined, theme, props.x.length < 2,
    powers.left, powers.right,
  ]);
  const ready = width > 0;
  useEffect(() => {
    const element = host.current;
    if (!element || !ready) return undefined;
    const steps = uPlot.paths.stepped?.({ align: 1 });
    if (!steps) throw new Error("uPlot has no stepped lines");
    const events = { props: () => current.current, onCursor: moveCursor };
    const wide = Math.floor(element.clientWidth);
    const options = plotOptions(current.current, wide, element.clientHeight, readColours(), events, steps);
    const made = new uPlot(options, plotData(current.current), element);
    plot.current = made;
    const whole = (): void => current.current.onRange?.(null);
    made.over.addEventListener("dblclick", whole);
    made.over.addEventListener("click", (event) => {
      const near = markNear(made, current.current.marks ?? [], event.offsetX);
      if (near) current.current.onMark?.(near);
    });
    return () => {
      plot.current = null;
      made.destroy();
    };
  }, [looks, ready, moveCursor]);

  useEffect(() => {
    plot.current?.setSize({ width, height });
  }, [width, height]);

  const { x, series, marks, range, y } = props;
  useEffect(() => {
    plot.current?.setData(plotData(current.current), true);
  }, [x, series, marks, range?.from, range?.to, y?.min, y?.max]);

  return (
    <div className={styles.plot} style={{ height }}>
      <div ref={host} className={styles.canvas} role="img" aria-label={summary(props)} />
      {mark && (
        <p className={styles.mark} style={{ left: `clamp(0px, ${left - 120}px, calc(100% - 240px))` }} role="presentation">
          <strong>{MARK_LOOKS[mark.kind].sign} {mark.label}</strong> {mark.detail}
        </p>
      )}
    </div>
  );
}

function markNear(plot: uPlot, marks: readonly ChartMark[], left: number): ChartMark | null {
  let best: ChartMark | null = null;
  let least = MARK_REACH;
  for (const mark of marks) {
    const away = Math.abs(plot.valToPos(mark.at, "x") - left);
    if (away <= least) [best, least] = [mark, away];
  }
  return best;
}

/** Each line with its sign, and its value under the cursor, else its last. */
function Legend({ props, cursor, powers }: { props: TimeSeriesProps; cursor: Cursor | null; powers: Powers }) {
  const drawn = cursor ? plotData(props) : null;
  const at = drawn && cursor ? (drawn[0] as number[])[cursor.index] : undefined;
  return (
    <ul className={styles.legend} aria-hidden>
      {at !== undefined && (
        <li className={styles.when} title={props.xKind === "number" ? undefined : timestampUtc(at)}>
          {props.xKind === "number" ? `${props.xLabel ?? "x"} ${compact(at)}` : timestamp(at)}
        </li>
      )}
      {props.series.map((series, number) => {
        const value = drawn && cursor ? valueAt(drawn[number + 1] as Column, cursor.index) : lastKnown(series.values);
        return (
          <li key={series.label}>
            <LineSample colour={series.colour ?? "accent"} dots={series.dots === true} />
            {series.label}
            {powers[series.axis ?? "left"] && " (powers of ten)"}
            <span className={styles.value}>{value === null || value === undefined ? "–" : (series.format ?? compact)(value)}</span>
          </li>
        );
      })}
    </ul>
  );
}

function LineSample({ colour, dots }: { colour: ChartColour; dots: boolean }) {
  const dash = colour === "second" ? "5 3" : colour === "third" ? "2 2.5" : undefined;
  return (
    <svg width="16" height="8" aria-hidden className={styles.sample}>
      <line x1="0" x2="16" y1="4" y2="4" strokeWidth="2.25" strokeDasharray={dash} style={{ stroke: `var(${colourName(colour)})` }} />
      {dots && <circle cx="8" cy="4" r="3" style={{ fill: `var(${colourName(colour)})` }} />}
    </svg>
  );
}

type Column = readonly (number | null | undefined)[];

/** The value under the cursor; where only another series has a point, the last one before it. */
function valueAt(values: Column, index: number): number | null {
  for (let at = index; at >= 0; at--) {
    const value = values[at];
    if (value !== undefined) return value;
  }
  return null;
}

function lastKnown(values: Column): number | null {
  for (let at = values.length - 1; at >= 0; at--) {
    const value = values[at];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}

/** What the canvas shows, in a sentence. */
function summary(props: TimeSeriesProps): string {
  const { from, to } = shownRange(props);
  const word = (value: number): string => (props.xKind === "number" ? compact(value) : timestamp(value));
  const lines = props.series.map((series) => {
    const last = lastKnown(series.values);
    return last === null ? `${series.label}: nothing yet` : `${series.label}: last ${(series.format ?? compact)(last)}`;
  });
  const marks = props.marks?.length ? ` ${props.marks.length} ${props.marks.length === 1 ? "mark" : "marks"}.` : "";
  return `${props.title}, ${word(from)} to ${word(to)}. ${lines.join("; ")}.${marks}`;
}
