/** What may be done to a job: what cannot be taken back after a question, all else at once. */

import { type ReactNode, useCallback, useState } from "react";

import { useExtendJob, usePauseJob, useRemoveJob, useStopJob } from "../../api/jobs";
import { isOver, type Job } from "../../api/types";
import { Confirm } from "../../components/Dialog";
import { TextField } from "../../components/Field";
import { sentence } from "../../components/format";
import { toast } from "../../components/toasts";
import { ChangeDialog } from "./ChangeDialog";
import { lostByPausing, lostByStopping } from "./words";

type Action = "stop" | "remove" | "pause" | "resume" | "extend" | "change";
export type AskAboutJob = (action: Action, job: Job) => void;

/** `ask` opens the question, if there is one; `dialog` stands somewhere on the page. `onRemoved` hears that a job is gone. */
export function useJobActions(onRemoved?: (id: string) => void): { ask: AskAboutJob; dialog: ReactNode } {
  const [asked, setAsked] = useState<{ action: Action; job: Job } | null>(null);
  const stop = useStopJob();
  const remove = useRemoveJob();
  const { mutateAsync: pause, isPending: pausing } = usePauseJob();
  const close = () => setAsked(null);

  const turn = useCallback(
    (verb: "pause" | "resume", job: Job) => pause({ id: job.id, verb }).then(({ message }) => toast.say(sentence(message)), toast.problem),
    [pause],
  );
  const ask = useCallback<AskAboutJob>(
    (action, job) => {
      if (action === "resume" || (action === "pause" && lostByPausing(job) === null)) void turn(action, job);
      else setAsked({ action, job });
    },
    [turn],
  );

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
          <strong>{job.app_name}</strong> {lostByStopping(job)}
        </p>
      </Confirm>
    );
  } else if (asked?.action === "pause") {
    const { job } = asked;
    dialog = (
      <Confirm
        title={`Pause ${job.id}?`}
        action="Pause"
        busy={pausing}
        onClose={close}
        onConfirm={() => void turn("pause", job).finally(close)}
      >
        <p>
          <strong>{job.app_name}</strong> {lostByPausing(job)}
        </p>
      </Confirm>
    );
  } else if (asked?.action === "extend") {
    dialog = <Extend job={asked.job} onClose={close} />;
  } else if (asked?.action === "change") {
    dialog = <ChangeDialog job={asked.job} onClose={close} />;
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

function Extend({ job, onClose }: { readonly job: Job; readonly onClose: () => void }) {
  const now = job.wanted_epochs ?? job.epochs;
  const [epochs, setEpochs] = useState(now === null ? "" : String(now + 1));
  const extend = useExtendJob();
  const wanted = /^[0-9]{1,10}$/.test(epochs) ? Number(epochs) : 0;
  return (
    <Confirm
      title={`Extend ${job.id}`}
      action="Extend"
      danger={false}
      busy={extend.isPending}
      onClose={onClose}
      onConfirm={() =>
        void extend
          .mutateAsync({ id: job.id, epochs: wanted })
          .then(({ message }) => toast.say(sentence(message)), toast.problem)
          .finally(onClose)
      }
    >
      <p>
        {isOver(job.state)
          ? "It is over, so a new job with the same code and arguments goes on from its checkpoint."
          : "A running training leaves at its next step with a checkpoint, and goes on a second or two later."}
      </p>
      <TextField
        label="Epochs in all"
        inputMode="numeric"
        value={epochs}
        hint={now === null ? undefined : `It has ${now} now`}
        error={wanted > 0 ? undefined : "A whole number from 1"}
        onChange={(event) => setEpochs(event.target.value.trim())}
      />
    </Confirm>
  );
}
