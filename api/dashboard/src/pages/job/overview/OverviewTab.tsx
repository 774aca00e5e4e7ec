/** How a job stands: progress, why it waits or ended, its states over time, its history, the key facts. */

import { useQuery } from "@tanstack/react-query";
import { CirclePause, FolderX, Hourglass, Info, RotateCcw, SlidersHorizontal, TriangleAlert } from "lucide-react";
import { Link } from "react-router";

import { eventsQuery } from "../../../api/jobs";
import { useMayChange } from "../../../api/session";
import { isOver, type Job } from "../../../api/types";
import { Button } from "../../../components/Button";
import { sentence } from "../../../components/format";
import { Panel } from "../../../components/Panel";
import { ProblemNote } from "../../../components/ProblemNote";
import { Skeleton } from "../../../components/Skeleton";
import { useJobActions } from "../actions";
import { failedRank } from "../logs/ranks";
import { WhyPanel } from "../why/WhyPanel";
import { JobFacts } from "./JobFacts";
import { History } from "./History";
import styles from "./Overview.module.css";
import { GangTiles, ProgressTiles } from "./ProgressTiles";
import { StateStrip } from "./StateStrip";
import { StepTimesPanel } from "./StepTimesPanel";

export function OverviewTab({ job }: { readonly job: Job }) {
  const events = useQuery(eventsQuery(job.id));
  const mayChange = useMayChange();
  const actions = useJobActions();
  const waits = job.slots === 0 && !isOver(job.state);
  return (
    <div className={styles.columns}>
      <div className={styles.column}>
        <Remark job={job} />
        {job.remark !== null && (
          <div className={styles.remark} data-tone="warn">
            <Info size={18} aria-hidden />
            <div>
              <strong>About the submission</strong>
              <p className={styles.message}>{sentence(job.remark)}</p>
            </div>
          </div>
        )}
        {job.kept !== null && (
          <div className={styles.remark} data-tone="calm">
            <RotateCcw size={18} aria-hidden />
            <div>
              <strong>It can go on</strong>
              <p>{sentence(job.kept)}</p>
            </div>
          </div>
        )}
        {job.results_removed !== null && (
          <div className={styles.remark} data-tone="calm">
            <FolderX size={18} aria-hidden />
            <div>
              <strong>There is nothing to download any more</strong>
              <p>{sentence(job.results_removed)}</p>
            </div>
          </div>
        )}
        {waits && <WhyPanel job={job} />}
        <Panel title={job.kind === "gang" ? "Processes" : "Progress"}>
          {job.kind === "gang" ? <GangTiles job={job} /> : <ProgressTiles job={job} />}
        </Panel>
        {job.slots > 0 && !isOver(job.state) && <WhyPanel job={job} />}
        {job.kind === "elastic" && <StepTimesPanel job={job} />}
        <Panel title="States">
          {events.data ? <StateStrip job={job} events={events.data.items} /> : <Skeleton lines={1} height={26} />}
        </Panel>
        <Panel title="History" flush>
          {events.data ? (
            <History events={events.data.items} cut={events.data.cut} />
          ) : events.error ? (
            <ProblemNote error={events.error} onRetry={() => void events.refetch()} />
          ) : (
            <div className={styles.padded}>
              <Skeleton lines={5} />
            </div>
          )}
        </Panel>
      </div>
      <div className={styles.column}>
        <Panel
          title="Facts"
          tools={
            mayChange &&
            !isOver(job.state) && (
              <Button
                size="small"
                icon={SlidersHorizontal}
                disabled={job.stop_requested_at !== null}
                title={job.kind === "gang" ? "Change its priority" : "Change its workers or its priority"}
                onClick={() => actions.ask("change", job)}
              >
                Change
              </Button>
            )
          }
        >
          <JobFacts job={job} />
        </Panel>
        {actions.dialog}
      </div>
    </div>
  );
}

/** Why it waits, what it died of, or what is to be known of how it trained. */
function Remark({ job }: { readonly job: Job }) {
  if (job.waiting?.blocking === "paused") {
    return (
      <div className={styles.remark} data-tone="warn">
        <CirclePause size={18} aria-hidden />
        <div>
          <strong>Paused{job.paused_by === null ? "" : ` by ${job.paused_by}`}</strong>
          <p>It gets no slot until it is resumed, and goes on from {job.checkpoint_step === null ? "its beginning" : `step ${job.checkpoint_step}`} then.</p>
        </div>
      </div>
    );
  }
  if (job.waiting) {
    const { reason, rank, need, free } = job.waiting;
    return (
      <div className={styles.remark} data-tone="warn">
        <Hourglass size={18} aria-hidden />
        <div>
          <strong>{sentence(reason)}</strong>
          <p>
            Place {rank} among the waiting jobs · needs {need}
            {job.kind === "gang" && need > 1 ? " at once" : ""} · {free} free now
          </p>
        </div>
      </div>
    );
  }
  if (job.message === null) return null;
  if (job.state === "FINISHED") {
    return (
      <div className={styles.remark}>
        <Info size={18} aria-hidden />
        <div>
          <strong>To know</strong>
          <p className={styles.message}>{job.message}</p>
        </div>
      </div>
    );
  }
  const failed = job.state === "ERROR";
  const rank = failedRank(job);
  return (
    <div className={styles.remark} data-tone={failed ? "bad" : "calm"} {...(failed && { role: "alert" })}>
      <TriangleAlert size={18} aria-hidden />
      <div>
        <strong>{failed ? "The job failed" : isOver(job.state) ? "How it ended" : "Its last attempt ended"}</strong>
        <p className={styles.message}>{job.message}</p>
        {failed && (
          <Link to={`/jobs/${job.id}/logs?stream=${rank === null ? "err" : `rank-${rank}.err`}`}>
            What {rank === null ? "it" : `rank ${rank}`} wrote to standard error
          </Link>
        )}
      </div>
    </div>
  );
}
