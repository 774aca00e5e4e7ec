/** Who has jobs in a queue and below it, and which jobs wait there and why. */

import { Link } from "react-router";

import type { Queue } from "../../api/types";
import { jobClass } from "../../charts/palette";
import { Badge } from "../../components/Badge";
import { Firsts } from "../../components/Firsts";
import { plural } from "../../components/format";
import { Panel } from "../../components/Panel";
import { Ago } from "../../components/Time";
import { ruleWord } from "../job/why/words";
import { QueueLink } from "./QueueLink";
import styles from "./Queues.module.css";
import { usageWords, usersOf, waitingOf } from "./tree";

const FIRST = 20;

interface Of {
  readonly queue: Queue;
  /** The queue and all below it. */
  readonly part: readonly Queue[];
}

export function WaitingBelow({ queue, part }: Of) {
  const waiting = waitingOf(part);
  return (
    <Panel title={`Who waits (${queue.waiting})`} flush>
      {queue.waiting === 0 ? (
        <p className={styles.none}>No job waits here.</p>
      ) : (
        <div className={styles.tree}>
          <Firsts items={waiting} first={FIRST} noun="job" all={queue.waiting}>
            {(shown) =>
              shown.length > 0 && (
                <div className={styles.scroll} tabIndex={0} role="region" aria-label="Jobs that wait">
                  <table aria-label="Jobs that wait" className={styles.table}>
                    <thead>
                      <tr>
                        {["Place", "Job", "Why", "Needs", "Owner", "Queue", "Priority", "Since"].map((name) => (
                          <th key={name} scope="col">
                            {name}
                          </th>
                        ))}
                      </tr>
                    </thead>
                    <tbody>
                      {shown.map((job) => (
                        <tr key={job.job} data-job={job.job} data-plain>
                          <td>{job.rank === 0 ? "–" : job.rank}</td>
                          <th scope="row">
                            <span className={styles.job}>
                              <i className={`job-swatch ${jobClass(job.job)}`} aria-hidden />
                              <Link to={`/jobs/${job.job}`}>{job.job}</Link>
                            </span>
                            <span className={styles.jobName} title={job.name}>
                              {job.name}
                            </span>
                          </th>
                          <td className={styles.why}>
                            {job.blocking !== null && <Badge>{ruleWord(job.blocking)}</Badge>}
                            <span>{job.reason}</span>
                          </td>
                          <td>{job.max > job.need ? `${job.need} to ${job.max}` : job.need}</td>
                          <td>{job.owner}</td>
                          <td>
                            <QueueLink path={job.queue} />
                          </td>
                          <td>{job.priority}</td>
                          <td>
                            <Ago at={job.since} />
                          </td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              )
            }
          </Firsts>
        </div>
      )}
    </Panel>
  );
}

export function UsersBelow({ queue, part }: Of) {
  const { users, others } = usersOf(part);
  return (
    <Panel title={`Users by queue (${users.length + others})`} flush>
      {users.length + others === 0 ? (
        <p className={styles.none}>Nobody has jobs or usage {queue.path === "" ? "yet" : "here"}.</p>
      ) : (
        <div className={styles.tree}>
          <Firsts items={users} first={FIRST} noun="user" all={users.length + others}>
            {(shown) =>
              shown.length > 0 && (
                <div className={styles.scroll} tabIndex={0} role="region" aria-label="Users by queue">
                  <table aria-label="Users by queue" className={styles.table}>
                    <thead>
                      <tr>
                        {["User", "Queue", "Held / entitled", "Running", "Waiting", "Usage"].map((name) => (
                          <th key={name} scope="col">
                            {name}
                          </th>
                        ))}
                      </tr>
                    </thead>
                    <tbody>
                      {shown.map((user) => (
                        <tr key={`${user.queue} ${user.user}`} data-user={user.user} data-plain>
                          <th scope="row">{user.user}</th>
                          <td>
                            <QueueLink path={user.queue} />
                          </td>
                          <td title={`Holds ${plural(user.held, "slot")}, is entitled to ${user.entitled}`}>
                            <strong>{user.held}</strong> / {user.entitled}
                          </td>
                          <td>{user.running}</td>
                          <td>{user.waiting}</td>
                          <td>{usageWords(user.usage)}</td>
                        </tr>
                      ))}
                    </tbody>
                  </table>
                </div>
              )
            }
          </Firsts>
        </div>
      )}
    </Panel>
  );
}
