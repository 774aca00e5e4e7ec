/** A line as high as a word, for rows and tiles. */

import styles from "./Sparkline.module.css";

export interface SparklineProps {
  /** What it shows, for those who do not see it; its last value belongs into it. */
  readonly label: string;
  readonly values: readonly (number | null)[];
  /** Where each value stands from left to right; evenly where nothing is said. */
  readonly x?: readonly number[];
  /** The ends of x; those of the points where nothing is said. */
  readonly from?: number;
  readonly to?: number;
  readonly max?: number;
  readonly width?: number;
  readonly height?: number;
  readonly step?: boolean;
}

export function Sparkline({ label, values, x, from, to, max, width = 120, height = 28, step }: SparklineProps) {
  const at = (index: number): number => x?.[index] ?? index;
  const left = from ?? at(0);
  const span = (to ?? at(values.length - 1)) - left || 1;
  const top = max ?? Math.max(...values.map((value) => value ?? 0), 1e-9);
  const px = (index: number): string => ((at(index) - left) / span * width).toFixed(1);
  const py = (value: number): string => (height - 1.5 - Math.min(1, Math.max(0, value / top)) * (height - 3)).toFixed(1);
  const lines: string[] = [];
  let open = "";
  let before: number | null = null;
  for (const [index, value] of values.entries()) {
    if (value === null) {
      if (open) lines.push(open);
      [open, before] = ["", null];
      continue;
    }
    if (open && step && before !== null) open += ` ${px(index)},${py(before)}`;
    open += `${open ? " " : ""}${px(index)},${py(value)}`;
    before = value;
  }
  if (open) lines.push(open);
  return (
    <svg className={styles.spark} viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={label} preserveAspectRatio="none">
      {lines.map((points, number) => {
        const ends = [points.split(" ")[0]?.split(",")[0], points.split(" ").at(-1)?.split(",")[0]];
        return (
          <g key={number}>
            <polygon className={styles.area} points={`${ends[0]},${height} ${points} ${ends[1]},${height}`} />
            <polyline className={styles.line} points={points} />
          </g>
        );
      })}
    </svg>
  );
}
