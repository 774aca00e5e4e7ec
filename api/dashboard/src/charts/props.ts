/**
 * What the shared charts take. Types alone, so that a page can be written against them.
 */

/** A colour by its meaning; the theme says what it looks like. A job's own hue is `{ job: "edt-7" }`. */
export type ChartColour = "accent" | "good" | "warn" | "bad" | "muted" | "second" | "third" | { readonly job: string };

/** One line of a chart. */
export interface ChartSeries {
  /** Shown in the legend, the hover read-out and the table's heading. */
  readonly label: string;
  /**
   * One value for each `x`; null where nothing is known, which leaves a gap. Undefined where only another series has a
   * point: the line goes on to the next point of its own.
   */
  readonly values: readonly (number | null | undefined)[];
  readonly colour?: ChartColour;
  /** Hold each value until the next one: for counts such as workers. */
  readonly step?: boolean;
  /** Draw a dot at each value: for few values that stand far apart. */
  readonly dots?: boolean;
  /** Fill the area below the line, lightly. */
  readonly fill?: boolean;
  /** The axis it is read on; "left" where nothing is said. */
  readonly axis?: "left" | "right";
  /** How a value is written; compact numbers where nothing is said. */
  readonly format?: (value: number) => string;
}

/** Something that happened at one time, drawn as a line with a small flag. */
export interface ChartMark {
  /** Where on the x axis. */
  readonly at: number;
  /** A word or two beside the flag: "2 → 1". */
  readonly label: string;
  /** Said on hover and in the table: the cause, the pause, what was lost. */
  readonly detail?: string;
  readonly kind: "grow" | "shrink" | "failure" | "event";
  /** Which thing it is, for whoever is told of a click. */
  readonly id?: number;
}

/** A stretch of the x axis. */
export interface XRange {
  readonly from: number;
  readonly to: number;
}

export interface TimeSeriesProps {
  /** Heading of the chart, and its accessible name. */
  readonly title: string;
  /** Ascending: seconds since the epoch, or any number where `xKind` is "number". */
  readonly x: readonly number[];
  readonly xKind?: "time" | "number";
  /** What x is: "Time" or, say, "Step". Heads the table's first column. */
  readonly xLabel?: string;
  readonly series: readonly ChartSeries[];
  readonly marks?: readonly ChartMark[];
  /** Told of a click on a mark. */
  readonly onMark?: (mark: ChartMark) => void;
  /** Charts of the same key move their cursors together. */
  readonly sync?: string;
  /** Pixels of the plot; 180 where nothing is said. */
  readonly height?: number;
  /** The stretch shown; all of `x` where nothing is said. */
  readonly range?: XRange | null;
  /** Told when a stretch is brushed; null: a double click, show all again. Without it the chart cannot be zoomed. */
  readonly onRange?: (range: XRange | null) => void;
  /** Bounds of the left axis that hold whatever the values are: `{ min: 0 }`, `{ min: 0, max: 1 }`. */
  readonly y?: { readonly min?: number; readonly max?: number; readonly whole?: boolean };
  /** Said in place of the plot while there is no point. */
  readonly empty?: string;
}
