/** Changes that were tried on the present state and help: with the command, and a button for whoever may make them. */

import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { jobQuery, useChangeJob, usePauseJob } from "../../../api/jobs";
import { useNodeVerb } from "../../../api/nodes";
import { usePutQueue } from "../../../api/queues";
import type { Explained, Suggestion } from "../../../api/types";
import { Button } from "../../../components/Button";
import { Command } from "../../../components/Command";
import { plural, sentence } from "../../../components/format";
import { toast } from "../../../components/toasts";
import { useJobActions } from "../actions";
import styles from "./Why.module.css";
import { plansWords } from "./words";

export function Changes({ told }: { readonly told: Explained }) {
  const { apply, busy, dialog } = useApply();
  const waits = told.waits !== null;
  const none = waits ? "No single change that was tried would start it now." : "No single change that was tried would give it more.";
  if (told.waits === null && told.holds === null) return null;
  if (told.changes.length === 0 && told.untried === 0 && !waits) return null;
  return (
    <section className={styles.part}>
      <h3>{waits ? "What would start it now" : "What would give it more"}</h3>
      {told.changes.length === 0 ? (
        <p className={styles.words}>{none}</p>
      ) : (
        <ul className={styles.changes} aria-label="Changes that help">
          {told.changes.map((each) => (
            <li key={each.sentence}>
              <div className={styles.change}>
                <strong>If {each.sentence}</strong>
                <span className="quiet">
                  it then has {plural(each.slots, "slot")}, {plansWords(each.plans)}
                  {each.resubmit ? "; for this it has to be submitted anew" : ""}
                </span>
              </div>
              {each.command !== "" && (
                <>
                  <Command text={each.command} />
                  <Button size="small" aria-label={`Apply: ${each.sentence}`} disabled={busy} onClick={() => apply(each)}>
                    Apply
                  </Button>
                </>
              )}
            </li>
          ))}
        </ul>
      )}
      {told.untried > 0 && <p className={styles.words}>{sentence(`${plural(told.untried, "further kind")} of change were not tried for lack of time`)}</p>}
      {dialog}
    </section>
  );
}

/** What a suggestion's button does: the same call as its command. To stop a job is asked for first. */
function useApply() {
  const queries = useQueryClient();
  const [busy, setBusy] = useState(false);
  const { mutateAsync: changeJob } = useChangeJob();
  const { mutateAsync: turn } = usePauseJob();
  const { mutateAsync: node } = useNodeVerb();
  const { mutateAsync: queue } = usePutQueue();
  const actions = useJobActions();

  const done = async ({ change }: Suggestion): Promise<string> => {
    switch (change.kind) {
      case "job": {
        const { min, max, priority } = change;
        const wanted = { ...(min != null && { min_workers: min }), ...(max != null && { max_workers: max }), ...(priority != null && { priority }) };
        return (await changeJob({ id: change.job, change: wanted })).message;
      }
      case "job-resumed":
        return (await turn({ id: change.job, verb: "resume" })).message;
      case "node-opened":
        await node({ name: change.node, verb: "uncordon" });
        return `${change.node} takes work again`;
      case "queue": {
        const { quota, limit } = change;
        return (await queue({ path: change.queue, settings: { ...(quota != null && { quota }), ...(limit != null && { limit }) } })).message;
      }
      default:
        throw new Error(`no button does ${change.kind}`);
    }
  };
  const apply = (suggestion: Suggestion): void => {
    const { change } = suggestion;
    if (change.kind === "job-stopped") {
      void queries.fetchQuery(jobQuery(change.job)).then((job) => actions.ask("stop", job), toast.problem);
      return;
    }
    setBusy(true);
    void done(suggestion)
      .then((message) => toast.say(sentence(message)), toast.problem)
      .finally(() => setBusy(false));
  };
  return { apply, busy, dialog: actions.dialog };
}
