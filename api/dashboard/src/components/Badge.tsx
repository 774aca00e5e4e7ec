/** A state as a word with a sign; the colour only repeats it. */

import {
  CircleCheck,
  CircleDashed,
  CirclePause,
  CirclePlay,
  CircleSlash,
  CircleStop,
  CircleX,
  Hourglass,
  LoaderCircle,
  type LucideIcon,
} from "lucide-react";
import type { ReactNode } from "react";

import type { Job, JobState } from "../api/types";
import styles from "./Badge.module.css";

export type Tone = "good" | "warn" | "bad" | "calm" | "accent";

export function Badge({
  tone = "calm",
  icon: Icon,
  title,
  children,
}: {
  readonly tone?: Tone;
  readonly icon?: LucideIcon;
  readonly title?: string;
  readonly children: ReactNode;
}) {
  return (
    <span className={styles.badge} data-tone={tone} title={title}>
      {Icon && <Icon size={13} strokeWidth={2.2} aria-hidden />}
      {children}
    </span>
  );
}

const STATUSES: Readonly<Record<Job["status"], { word: string; tone: Tone; icon: LucideIcon; title?: string }>> = {
  submitted: { word: "Submitted", tone: "calm", icon: CircleDashed },
  waiting: { word: "Waiting", tone: "warn", icon: Hourglass },
  starting: { word: "Starting", tone: "accent", icon: LoaderCircle, title: "It holds slots; its processes are being started" },
  running: { word: "Running", tone: "accent", icon: CirclePlay },
  pausing: { word: "Pausing", tone: "warn", icon: CirclePause, title: "Its engines leave with a checkpoint" },
  paused: { word: "Paused", tone: "warn", icon: CirclePause, title: "It gets no slot until it is resumed" },
  stopping: { word: "Stopping", tone: "warn", icon: CircleStop, title: "Its stop was asked for" },
  finished: { word: "Finished", tone: "good", icon: CircleCheck },
  stopped: { word: "Stopped", tone: "calm", icon: CircleSlash },
  failed: { word: "Failed", tone: "bad", icon: CircleX },
};

/** The status of a job of which no more than the state is known. */
const OF_STATE: Readonly<Record<JobState, Job["status"]>> = {
  SUBMITTED: "submitted",
  PENDING_CRD_SCHEDULER: "waiting",
  RUNNING: "running",
  FINISHED: "finished",
  KILLED: "stopped",
  ERROR: "failed",
};

export function stateWord(state: JobState): string {
  return STATUSES[OF_STATE[state]].word;
}

export function statusWord(job: Pick<Job, "status">): string {
  return STATUSES[job.status].word;
}

export function StateBadge({ job }: { readonly job: { readonly state: JobState; readonly status?: Job["status"] } }) {
  const { word, tone, icon, title } = STATUSES[job.status ?? OF_STATE[job.state]];
  return (
    <Badge tone={tone} icon={icon} title={title ?? job.state}>
      {word}
    </Badge>
  );
}
