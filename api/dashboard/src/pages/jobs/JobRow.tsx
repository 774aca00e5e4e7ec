/** One job as a row: what it is, how it stands, how far it is, what may be done with it. */

import { CircleStop, Trash2 } from "lucide-react";
import { memo, type MouseEvent } from "react";
import { Link, useNavigate } from "react-router";

import { isOver, type Job } from "../../api/types";
import { jobClass } from "../../charts/palette";
import { StateBadge, statusWord } from "../../components/Badge";
import { Button } from "../../components/Button";
import { number } from "../../components/format";
import { ProgressBar } from "../../components/ProgressBar";
import { Ago, Lasting } from "../../components/Time";
import { Workers } from "../../components/Workers";
import type { AskAboutJob } from "../job/actions";
import styles from "./JobsTable.module.css";

export const JobRow = memo(function JobRow({
  job,
  index,
  owner,
  ask,
}: {
  readonly job: Job;
  readonly index: number;
  /** Whether the owner is shown. */
  readonly owner: boolean;
  /** Undefined: whoever looks may not change the job. */
  readonly ask: AskAboutJob | undefined;
}) {
  const navigate = useNavigate();
  const path = `/jobs/${job.id}`;
  const open = (event: MouseEvent<HTMLElement>) => {
    const target = event.target as HTMLElement;
    if (target.closest("a, button") || window.getSelection()?.toString()) return;
    void navigate(path);
  };
  const over = isOver(job.state);
  const speed = job.state === "RUNNING" ? job.progress.samples_per_second : null;
  return (
    <tr
      aria-label={`${job.id} ${job.app_name}, ${statusWord(job)}`}
      aria-rowindex={index + 2}
      data-job={job.id}
      data-state={job.state}
      className={styles.row}
      onClick={open}
    >
      <th scope="row" className={styles.job}>
        <span className={styles.id}>
          <i className={`job-swatch ${jobClass(job.id)}`} aria-hidden />
          <Link to={path}>{job.id}</Link>
        </span>
        <span className={styles.name} title={job.app_name}>
          {job.kind === "gang" && (
            <span className={styles.kind} title="A gang: it is not elastic">
              gang
            </span>
          )}
          {job.app_name}
        </span>
      </th>
      <td className={styles.state}>
        <StateBadge job={job} />
      </td>
      <td className={styles.workers}>
        <Workers job={job} />
      </td>
      <td className={styles.progress}>
        <ProgressBar job={job} />
      </td>
      <td className={styles.speed}>
        {speed === null || speed === undefined ? (
          <span className="quiet">–</span>
        ) : (
          number(speed)
        )}
      </td>
      <td className={styles.metric} title={job.main_metric?.name}>
        {job.main_metric === null ? (
          <span className="quiet">–</span>
        ) : (
          <>
            {job.main_metric.value === null ? "–" : number(job.main_metric.value)}
            <span className={styles.of}>{job.main_metric.name}</span>
          </>
        )}
      </td>
      {owner && (
        <td className={styles.owner} title={job.owner_removed ? `${job.owner}, removed` : job.owner}>
          {job.owner}
        </td>
      )}
      <td className={styles.framework} title={job.framework}>
        {job.framework}
      </td>
      <td className={styles.created}>
        <Ago at={job.created_at} />
      </td>
      <td className={styles.duration}>
        {job.started_at === null ? (
          <span className="quiet">–</span>
        ) : (
          <Lasting from={job.started_at} to={job.finished_at} />
        )}
      </td>
      <td className={styles.actions}>
        {ask && (
          <>
            <Button
              look="ghost"
              size="small"
              icon={CircleStop}
              aria-label={`Stop ${job.id}`}
              title="Stop"
              disabled={over || job.stop_requested_at !== null}
              onClick={() => ask("stop", job)}
            />
            <Button
              look="ghost"
              size="small"
              icon={Trash2}
              aria-label={`Remove ${job.id}`}
              title="Remove"
              onClick={() => ask("remove", job)}
            />
          </>
        )}
      </td>
    </tr>
  );
});
