/** How far a job is, in a bar and a line; where it waits or broke, why. */

import { isOver, type Job } from "../api/types";
import { count, percentDone, shortDuration } from "./format";
import styles from "./ProgressBar.module.css";

export function ProgressBar({ job }: { readonly job: Job }) {
  if (job.state === "PENDING_CRD_SCHEDULER" && job.waiting) {
    return <Line text={job.waiting.reason} />;
  }
  if (isOver(job.state) && job.state !== "FINISHED" && job.message) return <Line text={job.message} />;
  const share = job.kind === "gang" ? null : (job.share_done ?? null);
  if (job.kind === "gang" && job.status === "running") return <span className="quiet">–</span>;
  if (share === null) return <span className="quiet">{job.status === "running" || job.status === "starting" ? "Starting" : "–"}</span>;
  const total = job.progress.steps_total ?? job.steps_total;
  const step = job.progress.step ?? total;
  const left = job.state === "RUNNING" && job.eta_seconds != null ? `${shortDuration(job.eta_seconds)} left` : "";
  return (
    <span className={styles.progress}>
      <span className={styles.words}>
        <span>{percentDone(share)}</span>
        {total != null && step != null && (
          <span className="quiet" title="Steps">
            {count(step)} / {count(total)}
          </span>
        )}
        {left && <span className={styles.left}>{left}</span>}
      </span>
      <Bar share={share} label={`Progress of ${job.id}`} done={job.state === "FINISHED"} />
    </span>
  );
}

export function Bar({ share, label, done = false }: { readonly share: number; readonly label: string; readonly done?: boolean }) {
  return (
    <span
      role="progressbar"
      aria-label={label}
      aria-valuenow={Math.round(share * 100)}
      aria-valuemin={0}
      aria-valuemax={100}
      className={styles.track}
      data-done={done}
    >
      <span style={{ width: `${share * 100}%` }} />
    </span>
  );
}

function Line({ text }: { readonly text: string }) {
  return (
    <span className={styles.line} title={text}>
      {text}
    </span>
  );
}
