/** Stopping and removing a job, each after a question. */

import { type ReactNode, useCallback, useState } from "react";

import { useRemoveJob, useStopJob } from "../../api/jobs";
import { isOver, type Job } from "../../api/types";
import { Confirm } from "../../components/Dialog";
import { toast } from "../../components/toasts";

type Action = "stop" | "remove";
export type AskAboutJob = (action: Action, job: Job) => void;

/** `ask` opens the question; `dialog` stands somewhere on the page. `onRemoved` hears that a job is gone. */
export function useJobActions(onRemoved?: (id: string) => void): { ask: AskAboutJob; dialog: ReactNode } {
  const [asked, setAsked] = useState<{ action: Action; job: Job } | null>(null);
  const stop = useStopJob();
  const remove = useRemoveJob();
  const ask = useCallback<AskAboutJob>((action, job) => setAsked({ action, job }), []);
  const close = () => setAsked(null);

  let dialog: ReactNode = null;
  if (asked?.action === "stop") {
    const { job } = asked;
    dialog = (
      <Confirm
        title={`Stop ${job.id}?`}
        action="Stop"
        busy={stop.isPending}
        onClose={close}
        onConfirm={() =>
          void stop
            .mutateAsync(job.id)
            .then(() => toast.say(`${job.id} is being stopped`), toast.problem)
            .finally(close)
        }
      >
        <p>
          <strong>{job.app_name}</strong>{" "}
          {job.kind === "gang" ? "is told to end, and has some seconds to save. It" : "ends at once and"} cannot go on later. Its logs and what it
          saved so far stay.
        </p>
      </Confirm>
    );
  } else if (asked) {
    const { job } = asked;
    dialog = (
      <Confirm
        title={`Remove ${job.id}?`}
        action="Remove"
        busy={remove.isPending}
        onClose={close}
        onConfirm={() =>
          void remove
            .mutateAsync(job.id)
            .then(() => {
              toast.say(`${job.id} is removed`);
              onRemoved?.(job.id);
            }, toast.problem)
            .finally(close)
        }
      >
        <p>
          {isOver(job.state) ? null : "It still runs or waits, and is stopped first. "}
          The logs and results of <strong>{job.app_name}</strong> are deleted. This cannot be taken back.
        </p>
      </Confirm>
    );
  }
  return { ask, dialog };
}
