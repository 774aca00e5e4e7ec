/** All queues as rows of a table, indented by depth; a queue's rows below it can be closed. */

import { ChevronDown, ChevronRight } from "lucide-react";
import { type MouseEvent } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";

import type { Queue } from "../../api/types";
import { Button } from "../../components/Button";
import { Firsts } from "../../components/Firsts";
import { number } from "../../components/format";
import styles from "./Queues.module.css";
import { addressOf, bar, treeRows, type TreeRow, usageWords } from "./tree";

/** So many rows are shown at first. */
const FIRST = 60;

export function QueueTree({ queues, selected }: { readonly queues: readonly Queue[]; readonly selected: string }) {
  const [search, setSearch] = useSearchParams();
  const closed = new Set(search.getAll("closed"));
  const rows = treeRows(queues, closed, search.get("q") ?? "");
  const turn = (path: string): void =>
    setSearch(
      (before) => {
        const after = new URLSearchParams(before);
        if (closed.has(path)) after.delete("closed", path);
        else after.append("closed", path);
        return after;
      },
      { replace: true },
    );
  if (rows.length === 0) return <p className={styles.none}>No queue has this in its path.</p>;
  return (
    <>
      <div className={styles.tree}>
        <Firsts items={rows} first={FIRST} noun="queue">
          {(shown) => (
            <div className={`${styles.scroll ?? ""} ${styles.high ?? ""}`} tabIndex={0} role="region" aria-label="Tree of queues">
              <table aria-label="Queues" className={styles.table}>
                <thead>
                  <tr>
                    {["Queue", "Held / entitled", "Quota", "Weight", "Limit", "Policy", "Running", "Waiting", "Usage"].map((name) => (
                      <th key={name} scope="col">
                        {name}
                      </th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {shown.map((row) => (
                    <Row key={row.queue.path} row={row} selected={row.queue.path === selected} search={search} onTurn={turn} />
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Firsts>
      </div>
      <p className={styles.key}>
        <span>
          <i data-part="used" /> held
        </span>
        <span>
          <i data-part="over" /> held beyond what it is entitled to
        </span>
        <span>
          <i data-part="entitled" /> entitled to, not held
        </span>
        <span>
          <i data-part="quota" /> quota
        </span>
      </p>
    </>
  );
}

function Row({
  row,
  selected,
  search,
  onTurn,
}: {
  readonly row: TreeRow;
  readonly selected: boolean;
  readonly search: URLSearchParams;
  readonly onTurn: (path: string) => void;
}) {
  const { queue, open } = row;
  const navigate = useNavigate();
  const to = { pathname: addressOf(queue.path), search: search.toString() };
  const name = queue.path === "" ? "root" : queue.path;
  const look = (event: MouseEvent<HTMLElement>): void => {
    if ((event.target as HTMLElement).closest("a, button") || window.getSelection()?.toString()) return;
    void navigate(to);
  };
  return (
    <tr aria-label={name} data-queue={queue.path} data-selected={selected} onClick={look}>
      <th scope="row">
        <span className={styles.name} style={{ paddingLeft: queue.depth * 18 }}>
          {open === null ? (
            <span className={styles.leaf} />
          ) : (
            <Button
              look="ghost"
              size="small"
              icon={open ? ChevronDown : ChevronRight}
              aria-expanded={open}
              aria-label={`Queues below ${name}`}
              onClick={() => onTurn(queue.path)}
            />
          )}
          <Link to={to} title={name} aria-current={selected ? "true" : undefined}>
            {queue.name}
          </Link>
        </span>
      </th>
      <td>
        <Bar queue={queue} />
      </td>
      <td>{queue.quota}</td>
      <td>{number(queue.weight)}</td>
      <td>{queue.limit ?? <span className="quiet">none</span>}</td>
      <td>{queue.policy}</td>
      <td>{queue.running}</td>
      <td data-waits={queue.waiting > 0}>{queue.waiting}</td>
      <td>{usageWords(queue.usage)}</td>
    </tr>
  );
}

function Bar({ queue }: { readonly queue: Queue }) {
  const parts = bar(queue);
  const { used, entitled, quota } = queue;
  return (
    <span className={styles.use} title={`Holds ${used}, is entitled to ${entitled}, has a quota of ${quota}`}>
      <span className={styles.numbers}>
        <strong>{used}</strong> / {entitled}
      </span>
      <span className={styles.bar} aria-hidden>
        <i data-part="entitled" style={{ width: `${parts.entitled}%` }} />
        <i data-part="used" style={{ width: `${parts.used}%` }} />
        <i data-part="over" style={{ left: `${parts.used}%`, width: `${parts.over}%` }} />
        {quota > 0 && <i data-part="quota" style={{ left: `${parts.quota}%` }} />}
      </span>
    </span>
  );
}
