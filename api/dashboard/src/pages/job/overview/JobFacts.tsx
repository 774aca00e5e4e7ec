/** What a job is, line by line. */

import { type LucideIcon, Shield, ShieldAlert, ShieldCheck } from "lucide-react";
import { Link } from "react-router";

import { isOver, type Job } from "../../../api/types";
import { Badge, type Tone } from "../../../components/Badge";
import { CopyButton } from "../../../components/CopyButton";
import { count, duration, plural } from "../../../components/format";
import { Facts } from "../../../components/Panel";
import { Time } from "../../../components/Time";
import { QueueLink } from "../../queues/QueueLink";
import { bestModelWords } from "./metrics";
import styles from "./Overview.module.css";

export function JobFacts({ job }: { readonly job: Job }) {
  const bestModel = bestModelWords(job);
  return (
    <Facts
      facts={[
        ["Owner", job.owner_removed ? `${job.owner}, removed` : job.owner],
        ["Framework", job.framework],
        ["Kind", job.kind === "gang" ? `Gang of ${plural(job.processes ?? 0, "process", "processes")}, not elastic` : "Elastic"],
        ["Slots", slots(job)],
        job.kind === "gang" || job.min_workers === 1 ? null : ["Least workers", count(job.min_workers)],
        job.sizes.length === 0 ? null : ["Sizes", job.sizes.map(count).join(", ")],
        ["Queue", <QueueLink key="q" path={job.queue} />],
        ["Priority", count(job.priority)],
        job.after.length === 0 ? null : ["After", <After key="a" jobs={job.after} />],
        job.deadline === null ? null : ["Deadline", <Time key="t" at={job.deadline} />],
        job.time_limit === null ? null : ["Time limit", `${duration(job.time_limit)} of its attempts in all`],
        job.gpu_models.length === 0 ? null : ["GPU models", job.gpu_models.join(", ")],
        job.kind === "gang" && job.worker_device_num > 1 ? ["Workers", `${job.num_worker} of ${job.worker_device_num} slots, each on one node`] : null,
        job.engines === null ? null : ["Useful workers", `at most ${count(job.engines)}: one a micro-batch`],
        ["Attempts", job.max_restarts > 0 ? `${job.attempts}, restarts ${job.restarts} of ${job.max_restarts}` : job.attempts],
        ["Submitted", <Time key="t" at={job.created_at} />],
        job.started_at === null ? null : ["Started", <Time key="t" at={job.started_at} />],
        job.finished_at === null ? null : ["Ended", <Time key="t" at={job.finished_at} />],
        bestModel === null ? null : ["Best model", bestModel],
        job.resumed_from === null
          ? null
          : [
              "Began from",
              <Link key="l" to={`/jobs/${job.resumed_from}`}>
                {job.resumed_from}
                {job.resumed_step === null ? "" : `, step ${count(job.resumed_step)}`}
              </Link>,
            ],
        job.wanted_epochs === null ? null : ["Epochs", `${count(job.wanted_epochs)} in all, as its user asked for`],
        job.checkpoint_step === null ? null : ["Checkpoint", `step ${count(job.checkpoint_step)}`],
        job.progress.step == null || job.kind === "gang" ? null : ["Result", <Exactness key="e" job={job} />],
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

/** Jobs that must have finished first. */
function After({ jobs }: { readonly jobs: readonly string[] }) {
  return (
    <span className={styles.after}>
      {jobs.map((id) => (
        <Link key={id} to={`/jobs/${id}`}>
          {id}
        </Link>
      ))}
    </span>
  );
}

function slots(job: Job): string {
  const most = job.kind === "gang" ? String(job.max_workers) : `at most ${job.max_workers}`;
  return isOver(job.state) ? most : `${job.slots} of ${most}`;
}

const VERDICTS: Readonly<Record<Job["exactness"]["verdict"], { word: string; tone: Tone; icon: LucideIcon }>> = {
  exact: { word: "Exact", tone: "good", icon: ShieldCheck },
  "not-compared": { word: "Not compared", tone: "calm", icon: Shield },
  "not-exact": { word: "Not exact", tone: "warn", icon: ShieldAlert },
  "not-applicable": { word: "Not asked", tone: "calm", icon: Shield },
};

/** Whether the result has the bits of a training on one engine, as far as that was checked, and why that is said. */
function Exactness({ job }: { readonly job: Job }) {
  const { verdict, reason } = job.exactness;
  const { word, tone, icon } = VERDICTS[verdict];
  return (
    <>
      <Badge tone={tone} icon={icon}>
        {word}
      </Badge>
      <p className={styles.reason}>{reason}</p>
    </>
  );
}
