/** Tables of an explanation: jobs that stand in the way or take part, and what each node says. */

import { Link } from "react-router";

import type { Explained } from "../../../api/types";
import { jobClass } from "../../../charts/palette";
import { Badge } from "../../../components/Badge";
import { plural } from "../../../components/format";
import { Firsts } from "../../../components/Firsts";
import { QueueLink } from "../../queues/QueueLink";
import styles from "./Why.module.css";
import { VERDICTS, verdictCounts } from "./words";

type Holder = NonNullable<Explained["waits"]>["by"][number];
type Hidden = NonNullable<Explained["waits"]>["hidden"];

const FIRST = 8;

export function Holders({ title, of, hidden }: { readonly title: string; readonly of: readonly Holder[]; readonly hidden: Hidden }) {
  if (of.length === 0 && hidden.jobs === 0) return null;
  return (
    <section className={styles.part}>
      <h3>{title}</h3>
      {of.length > 0 && (
        <Firsts items={of} first={FIRST} noun="job">
          {(shown) => (
            <div className={styles.scroll} tabIndex={0} role="region" aria-label={title}>
              <table aria-label={title} className={styles.table}>
                <thead>
                  <tr>
                    {["Job", "Owner", "Queue", "Priority", "Slots", "Nodes", "How"].map((name) => (
                      <th key={name} scope="col">
                        {name}
                      </th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {shown.map((each) => (
                    <tr key={each.job} data-job={each.job}>
                      <th scope="row">
                        <JobLink id={each.job} />
                      </th>
                      <td>{each.user}</td>
                      <td>
                        <QueueLink path={each.queue} />
                      </td>
                      <td>{each.priority}</td>
                      <td>{each.slots}</td>
                      <td>{each.nodes.join(", ") || "–"}</td>
                      <td className={styles.wide}>{each.sentence}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Firsts>
      )}
      {hidden.jobs > 0 && (
        <p className={styles.words}>
          {plural(hidden.jobs, of.length > 0 ? "further job" : "job")} of other users {hidden.jobs === 1 ? "holds" : "hold"} {plural(hidden.slots, "slot")}.
        </p>
      )}
    </section>
  );
}

export function NodeVerdicts({ nodes }: { readonly nodes: NonNullable<Explained["nodes"]> }) {
  const all = Object.values(nodes.counts).reduce((sum, each) => sum + each, 0);
  return (
    <section className={styles.part}>
      <h3>
        Nodes <span className="quiet num">{verdictCounts(nodes.counts)}</span>
      </h3>
      {nodes.items.length === 0 ? (
        <p className={styles.words}>No node has joined.</p>
      ) : (
        <Firsts items={nodes.items} first={FIRST} noun="node" all={all}>
          {(shown) => (
            <div className={styles.scroll} tabIndex={0} role="region" aria-label="Verdict on each node">
              <table aria-label="Verdict on each node" className={styles.table}>
                <thead>
                  <tr>
                    {["Node", "Verdict", "Free", "Held by", "Why"].map((name) => (
                      <th key={name} scope="col">
                        {name}
                      </th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {shown.map((each) => (
                    <tr key={each.node} data-node={each.node} data-verdict={each.verdict}>
                      <th scope="row">
                        <Link to={`/nodes/${encodeURIComponent(each.node)}`}>{each.node}</Link>
                      </th>
                      <td>
                        <Badge tone={VERDICTS[each.verdict].tone}>{VERDICTS[each.verdict].word}</Badge>
                      </td>
                      <td>
                        {each.free} of {each.slots}
                      </td>
                      <td className={styles.jobs}>
                        {each.jobs.slice(0, FIRST).map((job) => (
                          <JobLink key={job} id={job} />
                        ))}
                        <Others jobs={each.jobs.length - Math.min(each.jobs.length, FIRST) + each.hidden.jobs} none={each.jobs.length === 0} />
                      </td>
                      <td className={styles.wide}>{each.sentence}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Firsts>
      )}
    </section>
  );
}

function Others({ jobs, none }: { readonly jobs: number; readonly none: boolean }) {
  if (jobs > 0) return <span className="quiet">{none ? plural(jobs, "job") : `and ${jobs} more`}</span>;
  return none ? <span className="quiet">–</span> : null;
}

function JobLink({ id }: { readonly id: string }) {
  return (
    <span className={styles.job}>
      <i className={`job-swatch ${jobClass(id)}`} aria-hidden />
      <Link to={`/jobs/${id}`}>{id}</Link>
    </span>
  );
}
