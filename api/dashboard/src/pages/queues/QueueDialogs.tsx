/** Add, change and remove a queue. Admins alone get here. */

import { useState } from "react";

import { asProblem, byField } from "../../api/problem";
import { usePutQueue, useRemoveQueue } from "../../api/queues";
import type { Queue, QueuePolicy } from "../../api/types";
import { Confirm } from "../../components/Dialog";
import { SelectField, TextField } from "../../components/Field";
import { sentence, wholeNumber } from "../../components/format";
import { toast } from "../../components/toasts";
import styles from "./Queues.module.css";
import { POLICIES } from "./tree";

const VERBS = ["add", "change", "remove"] as const;
export type QueueVerb = (typeof VERBS)[number];

export function isQueueVerb(word: string | null): word is QueueVerb {
  return VERBS.some((verb) => verb === word);
}

/** `onClose` hears which queue is to be looked at then; without one it is the same as before. */
export function QueueDialog({ verb, queue, onClose }: { readonly verb: QueueVerb; readonly queue: Queue; readonly onClose: (to?: string) => void }) {
  return verb === "remove" ? <Remove queue={queue} onClose={onClose} /> : <Edit before={verb === "change" ? queue : null} above={queue.path} onClose={onClose} />;
}

const FIELDS = ["path", "quota", "weight", "limit", "policy"] as const;
type Field = (typeof FIELDS)[number];

function Edit({ before, above, onClose }: { readonly before: Queue | null; readonly above: string; readonly onClose: (to?: string) => void }) {
  const put = usePutQueue();
  const [typed, setTyped] = useState<Record<Field, string>>({
    path: before?.path ?? `${above}/`,
    quota: String(before?.quota ?? 0),
    weight: String(before?.weight ?? 1),
    limit: before?.limit == null ? "" : String(before.limit),
    policy: before?.policy ?? "efficient",
  });
  const [refused, setRefused] = useState<Partial<Record<Field, string>>>({});
  const [tried, setTried] = useState(false);
  const wrong: Partial<Record<Field, string>> = {
    ...(before === null && !/[^/]$/.test(typed.path) && { path: "A path, such as /research/vision" }),
    ...(wholeNumber(typed.quota, 0) === null && { quota: "A whole number of slots, from 0" }),
    ...(!(typed.weight !== "" && Number(typed.weight) > 0) && { weight: "A number above 0" }),
    ...(typed.limit !== "" && wholeNumber(typed.limit, 0) === null && { limit: "A whole number of slots, or nothing for no limit" }),
  };
  const act = (): void => {
    setTried(true);
    if (Object.keys(wrong).length > 0) return;
    const settings = {
      quota: Number(typed.quota),
      weight: Number(typed.weight),
      limit: typed.limit === "" ? null : Number(typed.limit),
      policy: typed.policy as QueuePolicy,
    };
    void put.mutateAsync({ path: typed.path, settings }).then(
      ({ path, message }) => {
        toast.say(sentence(message));
        onClose(path);
      },
      (error: unknown) => {
        const found = byField(asProblem(error), FIELDS);
        setRefused(found);
        if (Object.keys(found).length === 0) toast.problem(error);
      },
    );
  };
  const given = (name: Field) => ({
    value: typed[name],
    error: (name === "path" && !tried ? undefined : wrong[name]) ?? (refused[name] && sentence(refused[name])),
    onChange: (event: { readonly target: { readonly value: string } }): void => {
      setTyped({ ...typed, [name]: event.target.value.trim() });
      setRefused({ ...refused, [name]: undefined });
    },
  });
  const name = before === null ? "a queue" : before.path === "" ? "the root" : before.path;
  const verb = before === null ? "Add" : "Change";
  return (
    <Confirm title={`${verb} ${name}`} action={verb} danger={false} busy={put.isPending} onClose={() => onClose()} onConfirm={act}>
      <div className={styles.form}>
        {before === null && <TextField label="Path" spellCheck={false} hint="The queue above it must be there" {...given("path")} />}
        <TextField label="Quota" inputMode="numeric" hint="Slots of its own. Those that it does not use are lent to others" {...given("quota")} />
        <TextField label="Weight" inputMode="decimal" hint="Its share of the rest, beside the queues that have the same parent" {...given("weight")} />
        <TextField label="Limit" inputMode="numeric" placeholder="no limit" hint="The most slots that its jobs hold together" {...given("limit")} />
        <SelectField label="Policy" hint={POLICIES[typed.policy as QueuePolicy]} {...given("policy")}>
          {Object.keys(POLICIES).map((policy) => (
            <option key={policy}>{policy}</option>
          ))}
        </SelectField>
      </div>
    </Confirm>
  );
}

function Remove({ queue, onClose }: { readonly queue: Queue; readonly onClose: (to?: string) => void }) {
  const remove = useRemoveQueue();
  const root = queue.parent === null;
  const verb = root ? "Reset" : "Remove";
  return (
    <Confirm
      title={`${verb} ${root ? "the root" : queue.path}?`}
      action={verb}
      busy={remove.isPending}
      onClose={() => onClose()}
      onConfirm={() =>
        void remove.mutateAsync(queue.path).then(
          () => {
            toast.say(root ? "The root has its first settings again" : `${queue.path} is removed`);
            onClose(queue.parent ?? "");
          },
          (error: unknown) => {
            toast.problem(error);
            onClose();
          },
        )
      }
    >
      <p>
        {root
          ? "The root cannot be removed. It gets back no quota, no limit, the weight 1 and the policy efficient."
          : `Its jobs belong to ${queue.parent === "" ? "the root" : queue.parent} then. They are not stopped, but may get fewer slots.`}
      </p>
    </Confirm>
  );
}
