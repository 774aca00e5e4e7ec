/** The reasons for which a job has waited so far, each with how long it held. */

import { useQuery } from "@tanstack/react-query";

import { eventsQuery } from "../../../api/jobs";
import type { Job } from "../../../api/types";
import { Badge } from "../../../components/Badge";
import { Firsts } from "../../../components/Firsts";
import { Lasting, Time } from "../../../components/Time";
import styles from "./Why.module.css";
import { reasons, ruleWord } from "./words";

const FIRST = 5;

export function Reasons({ job }: { readonly job: Job }) {
  const { data } = useQuery(eventsQuery(job.id));
  const found = reasons(data?.items ?? []);
  if (found.length === 0) return null;
  return (
    <section className={styles.part}>
      <h3>Reasons so far</h3>
      <Firsts items={found} first={FIRST} noun="earlier reason">
        {(shown) => (
          <ol className={styles.reasons} aria-label="Reasons so far">
            {shown.map((each) => (
              <li key={each.seq}>
                <Time at={each.time} />
                {each.rule !== "" && <Badge>{ruleWord(each.rule)}</Badge>}
                <span className={styles.reason}>{each.sentence}</span>
                <span className="quiet nowrap">
                  <Lasting from={each.time} to={each.until} />
                  {each.until === null ? " so far" : ""}
                </span>
              </li>
            ))}
          </ol>
        )}
      </Firsts>
    </section>
  );
}
