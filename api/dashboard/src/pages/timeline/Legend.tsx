/** The jobs in the chart that hold something now, or did last: their hue, name and size. */

import { memo, type ReactNode, useState } from "react";
import { Link } from "react-router";

import { isOver, type JobState } from "../../api/types";
import { jobClass } from "../../charts/palette";
import type { XRange } from "../../charts/props";
import { Button } from "../../components/Button";
import { plural } from "../../components/format";
import type { TimelineModel } from "./model";
import styles from "./Timeline.module.css";

const MOST = 10;

interface Props {
  readonly model: TimelineModel;
  readonly version: number;
  readonly range: XRange;
  readonly shows: (execId: string) => boolean;
  /** A job is pointed at, or none. */
  readonly onPoint: (execId: string | null) => void;
}

export const Legend = memo(function Legend({ model, range, shows, onPoint }: Props) {
  const [whole, setWhole] = useState(false);
  const jobs = new Map<string, { slots: number; last: number }>();
  for (const bar of model.bars.between(range)) {
    if (!shows(bar.execId)) continue;
    const known = jobs.get(bar.execId) ?? { slots: 0, last: 0 };
    if (bar.to === null) known.slots += 1;
    known.last = Math.max(known.last, bar.to ?? Number.POSITIVE_INFINITY);
    jobs.set(bar.execId, known);
  }
  const listed = [...jobs].sort(([, one], [, other]) => (one.last === other.last ? other.slots - one.slots : other.last > one.last ? 1 : -1));
  if (listed.length === 0) return <p className={styles.none}>No slot was held in this stretch of time.</p>;
  return (
    <ul className={styles.legend} aria-label="Jobs in the chart">
      {listed.slice(0, whole ? listed.length : MOST).map(([execId, { slots }]) => (
        <li key={execId}>
          <Chip execId={execId} closed={model.closed(execId)} onPoint={onPoint}>
            <i className={`job-swatch ${jobClass(execId)}`} />
            <span>{execId}</span>
            {model.jobs.get(execId)?.app_name && <span className={styles.chipName}>{model.jobs.get(execId)?.app_name}</span>}
            {model.isGang(execId) && <span className={styles.chipKind}>gang</span>}
            <span className={styles.chipSlots}>{slots > 0 ? plural(slots, "slot") : isOver(model.jobs.get(execId)?.state as JobState) ? "over" : "waiting"}</span>
          </Chip>
        </li>
      ))}
      {listed.length > MOST && (
        <li>
          <Button size="small" look="ghost" aria-expanded={whole} onClick={() => setWhole(!whole)}>
            {whole ? "Show fewer" : `and ${listed.length - MOST} more`}
          </Button>
        </li>
      )}
    </ul>
  );
});

function Chip(
  { execId, closed, onPoint, children }: {
    readonly execId: string; readonly closed: string | null; readonly onPoint: (execId: string | null) => void; readonly children: ReactNode;
  },
) {
  const pointing = { onMouseEnter: () => onPoint(execId), onMouseLeave: () => onPoint(null) };
  if (closed !== null) return <span className={styles.chip} title={closed} {...pointing}>{children}</span>;
  return (
    <Link to={`/jobs/${execId}`} className={styles.chip} {...pointing} onFocus={() => onPoint(execId)} onBlur={() => onPoint(null)}>
      {children}
    </Link>
  );
}
