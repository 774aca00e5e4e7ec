/** What a job is, line by line. Room: dashboard, pages. */

import { ShieldAlert, ShieldCheck } from "lucide-react";

import { isOver, type Job } from "../../../api/types";
import { Badge } from "../../../components/Badge";
import { CopyButton } from "../../../components/CopyButton";
import { count } from "../../../components/format";
import { Facts } from "../../../components/Panel";
import { Time } from "../../../components/Time";
import { frameworkWord } from "../words";
import styles from "./Overview.module.css";

export function JobFacts({ job }: { readonly job: Job }) {
  return (
    <Facts
      facts={[
        ["Owner", job.owner],
        ["Framework", frameworkWord(job.framework)],
        ["Slots", isOver(job.state) ? `at most ${job.max_workers}` : `${job.slots} of at most ${job.max_workers}`],
        job.engines === null ? null : ["Useful workers", `at most ${count(job.engines)}: one a micro-batch`],
        ["Attempts", job.max_restarts > 0 ? `${job.attempts}, restarts ${job.restarts} of ${job.max_restarts}` : job.attempts],
        ["Submitted", <Time key="t" at={job.created_at} />],
        job.started_at === null ? null : ["Started", <Time key="t" at={job.started_at} />],
        job.finished_at === null ? null : ["Ended", <Time key="t" at={job.finished_at} />],
        job.checkpoint_step === null ? null : ["Checkpoint", `step ${count(job.checkpoint_step)}`],
        job.progress.step == null ? null : ["Result", <Exactness key="e" job={job} />],
        job.digest === null
          ? null
          : [
              "SHA-256",
              <span key="d" className={styles.digest}>
                <code title={job.digest}>{job.digest.slice(0, 12)}…</code>
                <CopyButton text={job.digest} label="Copy the digest of the trained state" />
              </span>,
            ],
      ]}
    />
  );
}

/** Whether the result is the same, bit for bit, as with a fixed number of workers. */
function Exactness({ job }: { readonly job: Job }) {
  if (job.inexact === null) {
    return (
      <Badge tone="good" icon={ShieldCheck} title="The same bits, whatever the number of workers was">
        Exact
      </Badge>
    );
  }
  return (
    <>
      <Badge tone="warn" icon={ShieldAlert}>
        Not exact
      </Badge>
      <p className={styles.inexact}>{job.inexact}</p>
    </>
  );
}
