/** A state as a word with a sign; the colour only repeats it. Room: dashboard, components. */

import {
  CircleCheck,
  CircleDashed,
  CirclePlay,
  CircleSlash,
  CircleStop,
  CircleX,
  Hourglass,
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

const STATES: Readonly<Record<JobState, { word: string; tone: Tone; icon: LucideIcon }>> = {
  SUBMITTED: { word: "Submitted", tone: "calm", icon: CircleDashed },
  PENDING_CRD_SCHEDULER: { word: "Waiting", tone: "warn", icon: Hourglass },
  RUNNING: { word: "Running", tone: "accent", icon: CirclePlay },
  FINISHED: { word: "Finished", tone: "good", icon: CircleCheck },
  KILLED: { word: "Stopped", tone: "calm", icon: CircleSlash },
  ERROR: { word: "Failed", tone: "bad", icon: CircleX },
};

export function stateWord(state: JobState): string {
  return STATES[state].word;
}

export function StateBadge({ job }: { readonly job: Pick<Job, "state" | "stop_requested_at"> }) {
  const { word, tone, icon } = STATES[job.state];
  if (job.stop_requested_at !== null && (job.state === "RUNNING" || job.state === "PENDING_CRD_SCHEDULER")) {
    return (
      <Badge tone="warn" icon={CircleStop} title="Its stop was asked for">
        Stopping
      </Badge>
    );
  }
  return (
    <Badge tone={tone} icon={icon} title={job.state}>
      {word}
    </Badge>
  );
}
