/** The same numbers as a table: the twin of a chart. */

import { minMax } from "./downsample";
import { timestamp, timestampUtc } from "./timestamps";
import { MARK_LOOKS } from "./plot";
import type { ChartMark, TimeSeriesProps } from "./props";
import { compact } from "./ticks";
import styles from "./TimeSeries.module.css";

/** A table longer than this is read by nobody; peaks are kept. */
const MOST_ROWS = 300;

type Row = { readonly at: number; readonly index: number } | { readonly at: number; readonly mark: ChartMark };

export function SeriesTable(props: TimeSeriesProps) {
  const inside = (at: number): boolean => !props.range || (at >= props.range.from && at <= props.range.to);
  const shown = Array.from(props.x.keys()).filter((index) => inside(props.x[index] as number));
  const columns = props.series.map((series) => shown.map((index) => series.values[index] ?? null));
  const kept = minMax(shown, columns, MOST_ROWS).map((at) => shown[at] as number);
  const rows: Row[] = [
    ...kept.map((index) => ({ at: props.x[index] as number, index })),
    ...(props.marks ?? []).filter((mark) => inside(mark.at)).map((mark) => ({ at: mark.at, mark })),
  ];
  rows.sort((one, other) => other.at - one.at);
  const x = (at: number) =>
    props.xKind === "number" ? compact(at) : <time dateTime={new Date(at * 1000).toISOString()} title={timestampUtc(at)}>{timestamp(at)}</time>;
  return (
    <div className={styles.table} tabIndex={0} role="region" aria-label={`${props.title}, table`} style={{ maxHeight: (props.height ?? 180) + 28 }}>
      <table>
        <caption className="visually-hidden">
          {props.title}
          {kept.length < shown.length ? `: ${kept.length} of ${shown.length} points` : ""}
        </caption>
        <thead>
          <tr>
            <th scope="col">{props.xLabel ?? (props.xKind === "number" ? "x" : "Time")}</th>
            {props.series.map((series) => <th key={series.label} scope="col">{series.label}</th>)}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, number) => (
            <tr key={`${row.at} ${"mark" in row ? `m${number}` : row.index}`}>
              <th scope="row">{x(row.at)}</th>
              {"mark" in row ? (
                <td colSpan={props.series.length} className={styles.said}>
                  {MARK_LOOKS[row.mark.kind].sign} {MARK_LOOKS[row.mark.kind].word} {row.mark.label} {row.mark.detail}
                </td>
              ) : (
                props.series.map((series) => {
                  const value = series.values[row.index];
                  return <td key={series.label}>{value === null || value === undefined ? "–" : (series.format ?? compact)(value)}</td>;
                })
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
