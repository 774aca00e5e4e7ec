/** What a job's user may have in its queue and has, and the queues from there up to the root. */

import type { Explained } from "../../../api/types";
import { number, plural } from "../../../components/format";
import { QueueLink } from "../../queues/QueueLink";
import styles from "./Why.module.css";

export function Entitled({ entitlement }: { readonly entitlement: NonNullable<Explained["entitlement"]> }) {
  const { user, queue, entitled, held, jobs } = entitlement;
  return (
    <section className={styles.part}>
      <h3>Entitlement</h3>
      <p className={styles.words}>
        {user} is entitled to {plural(entitled, "slot")} in <QueueLink path={queue} /> now, and holds {held} there with {plural(jobs, "job")} that{" "}
        {jobs === 1 ? "is" : "are"} not over.
      </p>
      <div className={styles.scroll} tabIndex={0} role="region" aria-label="Queues from the job's own to the root">
        <table aria-label="Queues from the job's own to the root" className={styles.table}>
          <thead>
            <tr>
              {["Queue", "Policy", "Quota", "Weight", "Limit", "Held", "Waiting"].map((name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {entitlement.queues.map((each) => (
              <tr key={each.queue}>
                <th scope="row">
                  <QueueLink path={each.queue} />
                </th>
                <td>{each.policy}</td>
                <td>{each.quota}</td>
                <td>{number(each.weight)}</td>
                <td>{each.limit ?? "none"}</td>
                <td>{each.held}</td>
                <td>{each.waiting}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
