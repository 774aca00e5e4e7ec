/** A job's states as a strip from its submission to now, with words and times below. */

import { useNow } from "../../../api/stream/live";
import { type Event, isOver, type Job } from "../../../api/types";
import { StateBadge } from "../../../components/Badge";
import { duration } from "../../../components/format";
import { Time } from "../../../components/Time";
import { spans } from "./states";
import styles from "./Overview.module.css";

export function StateStrip({ job, events }: { readonly job: Job; readonly events: readonly Event[] }) {
  const over = isOver(job.state);
  const now = useNow(over ? 3_600_000 : 1_000);
  const all = spans(job, events, now);
  const drawn = all.filter((span) => !isOver(span.state));
  return (
    <div className={styles.states}>
      <div className={styles.strip} aria-hidden>
        {drawn.map((span, at) => (
          <i key={at} data-state={span.state} style={{ flexGrow: Math.max(span.to - span.from, 0.001) }} />
        ))}
      </div>
      <ol className={styles.spans}>
        {all.map((span, at) => (
          <li key={at}>
            <StateBadge job={{ state: span.state }} />
            <Time at={span.from} />
            <span className="quiet num">
              {isOver(span.state) ? "" : `${duration(span.to - span.from)}${span.lasts ? " so far" : ""}`}
            </span>
          </li>
        ))}
      </ol>
    </div>
  );
}
