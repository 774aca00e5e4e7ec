/** Another priority, and of an elastic job other least and most workers, while it waits or runs. */

import { useState } from "react";

import { useChangeJob } from "../../api/jobs";
import { asProblem, byField } from "../../api/problem";
import { useIsAdmin } from "../../api/session";
import type { Job, JobChange } from "../../api/types";
import { Confirm } from "../../components/Dialog";
import { TextField } from "../../components/Field";
import { sentence, wholeNumber } from "../../components/format";
import { toast } from "../../components/toasts";

const FIELDS = ["min_workers", "max_workers", "priority"] as const;
type Field = (typeof FIELDS)[number];

export function ChangeDialog({ job, onClose }: { readonly job: Job; readonly onClose: () => void }) {
  const admin = useIsAdmin();
  const change = useChangeJob();
  const [typed, setTyped] = useState<Record<Field, string>>({
    min_workers: String(job.min_workers),
    max_workers: String(job.max_workers),
    priority: String(job.priority),
  });
  const [refused, setRefused] = useState<Partial<Record<Field, string>>>({});
  const shown = job.kind === "gang" ? (["priority"] as const) : FIELDS;
  const wrong = shown.filter((name) => wholeNumber(typed[name]) === null);

  const act = (): void => {
    if (wrong.length > 0) return;
    const wanted = Object.fromEntries(shown.map((name) => [name, Number(typed[name])]).filter(([name, value]) => value !== job[name as Field]));
    if (Object.keys(wanted).length === 0) return onClose();
    void change.mutateAsync({ id: job.id, change: wanted as JobChange }).then(
      ({ message }) => {
        toast.say(sentence(message));
        onClose();
      },
      (error: unknown) => {
        const found = byField(asProblem(error), FIELDS);
        setRefused(found);
        if (Object.keys(found).length === 0) toast.problem(error);
      },
    );
  };
  const field = (name: Field, label: string, hint: string) => (
    <TextField
      label={label}
      inputMode="numeric"
      value={typed[name]}
      hint={hint}
      error={wrong.includes(name) ? "A whole number from 1" : refused[name] && sentence(refused[name])}
      onChange={(event) => {
        setTyped({ ...typed, [name]: event.target.value.trim() });
        setRefused({ ...refused, [name]: undefined });
      }}
    />
  );
  return (
    <Confirm title={`Change ${job.id}`} action="Change" danger={false} busy={change.isPending} onClose={onClose} onConfirm={act}>
      {job.kind === "elastic" && field("min_workers", "Least workers", "It trains with no fewer")}
      {job.kind === "elastic" && field("max_workers", "Most workers", "It grows no further. If it has more now, it shrinks at its next step")}
      {field("priority", "Priority", admin ? "Jobs of a higher one come first" : "Jobs of a higher one come first. At most the one with which it was submitted")}
      {job.kind === "gang" && <p>It is a gang: it keeps the size with which it was submitted.</p>}
    </Confirm>
  );
}
