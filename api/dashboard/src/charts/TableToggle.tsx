/** The button by which a chart becomes a table, and the table a chart again. */

import { ChartSpline, Table2 } from "lucide-react";

import styles from "./TimeSeries.module.css";

export function TableToggle({ of, on, onChange }: { of: string; on: boolean; onChange: (on: boolean) => void }) {
  const Icon = on ? ChartSpline : Table2;
  return (
    <button
      type="button"
      className={styles.toggle}
      aria-label={on ? `Show as chart: ${of}` : `Show as table: ${of}`}
      title={on ? "Show as chart" : "Show as table"}
      onClick={() => onChange(!on)}
    >
      <Icon size={15} aria-hidden />
    </button>
  );
}
