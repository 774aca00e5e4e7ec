/**
 * The table of jobs. Only the rows in sight are in the page, however many there are; further
 * pages are fetched as one comes near their place.
 */

import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useRef, useState } from "react";

import { useMayChange, useSeesAll } from "../../api/session";
import type { Job } from "../../api/types";
import { count } from "../../components/format";
import { useJobActions } from "../job/actions";
import { JobRow } from "./JobRow";
import styles from "./JobsTable.module.css";

const ROW = 53;
const AHEAD = 30;

export function JobsTable({
  jobs,
  total,
  more,
  busy,
  waiting,
  onMore,
}: {
  readonly jobs: readonly Job[];
  readonly total: number;
  readonly more: boolean;
  readonly busy: boolean;
  /** Nothing is here yet at all. */
  readonly waiting: boolean;
  readonly onMore: () => void;
}) {
  const seesAll = useSeesAll();
  const mayChange = useMayChange();
  const actions = useJobActions();
  const body = useRef<HTMLTableSectionElement>(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    if (body.current) setTop(body.current.getBoundingClientRect().top + window.scrollY);
  }, [waiting]);

  const rows = useWindowVirtualizer({
    count: jobs.length,
    estimateSize: () => ROW,
    overscan: 8,
    scrollMargin: top,
    getItemKey: (at) => jobs[at]?.id ?? at,
  });
  const shown = rows.getVirtualItems();
  const first = shown[0];
  const last = shown.at(-1);
  const near = (last?.index ?? 0) >= jobs.length - AHEAD;
  useEffect(() => {
    if (near && more && !busy) onMore();
  }, [near, more, busy, onMore]);

  const above = first ? first.start - top : 0;
  const below = last ? rows.getTotalSize() - (last.end - top) : 0;
  const columns = COLUMNS.filter((column) => seesAll || !column.ofAll);
  return (
    <div className={styles.frame}>
      <table aria-label="Jobs" aria-rowcount={total + 1} aria-busy={busy || waiting} className={styles.table}>
        <thead>
          <tr aria-rowindex={1}>
            {columns.map(({ name, title, cell }) => (
              <th key={name} scope="col" className={styles[cell]}>
                {title ? name : <span className="visually-hidden">{name}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <Space height={above} />
        <tbody ref={body}>
          {shown.map(({ index, key }) => {
            const job = jobs[index];
            return job && <JobRow key={key} job={job} index={index} owner={seesAll} ask={mayChange ? actions.ask : undefined} />;
          })}
          {waiting && <Shapes />}
        </tbody>
        <Space height={below} />
      </table>
      {busy && (
        <p role="status" className={styles.more}>
          Loading more of {count(total)}
        </p>
      )}
      {actions.dialog}
    </div>
  );
}

const COLUMNS = [
  { name: "Job", title: true, cell: "job" },
  { name: "State", title: true, cell: "state" },
  { name: "Workers", title: true, cell: "workers" },
  { name: "Progress", title: true, cell: "progress" },
  { name: "Samples/s", title: true, cell: "speed" },
  { name: "Metric", title: true, cell: "metric" },
  { name: "Owner", title: true, cell: "owner", ofAll: true },
  { name: "Framework", title: true, cell: "framework" },
  { name: "Created", title: true, cell: "created" },
  { name: "Duration", title: true, cell: "duration" },
  { name: "Actions", title: false, cell: "actions" },
] as const satisfies readonly { name: string; title: boolean; cell: string; ofAll?: true }[] as readonly {
  readonly name: string;
  readonly title: boolean;
  readonly cell: string;
  readonly ofAll?: true;
}[];

/** The room of the rows that are not in the page. */
function Space({ height }: { readonly height: number }) {
  if (height <= 0) return null;
  return (
    <tbody aria-hidden>
      <tr>
        <td style={{ height, padding: 0, border: 0 }} />
      </tr>
    </tbody>
  );
}

function Shapes() {
  return Array.from({ length: 8 }, (_, at) => (
    <tr key={at} className={styles.shape} aria-hidden>
      <td colSpan={4}>
        <span style={{ width: `${88 - ((at * 17) % 43)}%` }} />
      </td>
    </tr>
  ));
}
