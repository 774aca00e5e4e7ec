/** How many engines of a job count now, between the fewest and the most it may have. Of a gang: its slots, all or none. */

import { isOver, type Job } from "../api/types";
import styles from "./Workers.module.css";

/** More places than this are drawn as one bar. */
const PLACES = 16;

export function Workers({ job }: { readonly job: Job }) {
  const most = mostWorkers(job);
  const over = isOver(job.state);
  const gang = job.kind === "gang";
  const words = gang
    ? `${over ? "" : `${job.slots} of `}${most} slots, all at once: it is not elastic`
    : over
    ? `At most ${most}`
    : `${job.workers} now, ${job.slots} slots held, at least ${job.min_workers}, at most ${most}`;
  return (
    <span className={styles.workers} title={words}>
      <span className={styles.numbers}>
        {over ? <span className="quiet">–</span> : <strong>{gang ? job.slots : job.workers}</strong>}
        <span className="quiet">{gang ? `/ ${most}` : `${job.min_workers}–${most}`}</span>
      </span>
      <span className={styles.bar} aria-hidden>
        {most <= PLACES ? (
          Array.from({ length: most }, (_, at) => <i key={at} data-kind={kindOf(at, job)} />)
        ) : (
          <span className={styles.whole}>
            <i data-kind="held" style={{ width: `${(job.slots / most) * 100}%` }} />
            <i data-kind="works" style={{ width: `${((gang ? job.slots : job.workers) / most) * 100}%` }} />
          </span>
        )}
      </span>
    </span>
  );
}

/** No job grows beyond the micro-batches of its step, as soon as they are known. */
export function mostWorkers(job: Pick<Job, "max_workers" | "engines">): number {
  return job.engines === null ? job.max_workers : Math.min(job.max_workers, job.engines);
}

function kindOf(place: number, job: Job): "works" | "held" | "free" {
  if (place < (job.kind === "gang" ? job.slots : job.workers)) return "works";
  return place < job.slots ? "held" : "free";
}
