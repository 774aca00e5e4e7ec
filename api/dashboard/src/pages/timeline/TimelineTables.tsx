/** The chart as tables: for those who do not see a canvas, and for tests. */

import { memo, useState } from "react";
import { Link } from "react-router";

import { causeWords, failureWords } from "../../charts/causes";
import { laneKey, type Layout } from "../../charts/lanes";
import { jobClass } from "../../charts/palette";
import type { XRange } from "../../charts/props";
import { Button } from "../../components/Button";
import { duration } from "../../components/format";
import { Panel } from "../../components/Panel";
import { Time } from "../../components/Time";
import type { TimelineModel } from "./model";
import styles from "./Timeline.module.css";

const ROWS = 200;

interface Props {
  readonly model: TimelineModel;
  /** Part of the props so that a change of the model is a change of them. */
  readonly version: number;
  readonly layout: Layout;
  readonly range: XRange;
  readonly shows: (execId: string) => boolean;
}

export const TimelineTables = memo(function TimelineTables({ model, layout, range, shows }: Props) {
  const now = model.now();
  const bars = model.bars.between(range).filter((bar) => layout.lanes.has(laneKey(bar.node, bar.slot)) && shows(bar.execId));
  const inside = (fact: { time: number; execId: string }): boolean =>
    fact.time >= range.from && fact.time <= range.to && shows(fact.execId);
  const resizes = model.resizes.filter(inside).reverse();
  const failures = model.failures.filter(inside).reverse();
  return (
    <div className={styles.tables}>
      <Twin name="Allocations" columns={["Job", "Kind", "Owner", "Node", "Slot", "From", "To", "Duration"]} rows={bars} row={(bar) => (
        <tr
          key={bar.allocation} data-exec={bar.execId} data-node={bar.node} data-slot={bar.slot} data-start={bar.from}
          data-end={bar.to ?? ""}
        >
          <JobCell execId={bar.execId} closed={model.closed(bar.execId)} />
          <td>{model.isGang(bar.execId) ? "gang" : "elastic"}</td>
          <td>{model.jobs.get(bar.execId)?.owner ?? "–"}</td>
          <td>{bar.node}</td>
          <td className="num">{bar.slot}</td>
          <td><Time at={bar.from} /></td>
          <td>{bar.to === null ? "held" : <Time at={bar.to} />}</td>
          <td className="num">{duration((bar.to ?? now) - bar.from)}</td>
        </tr>
      )} />
      <Twin name="Resizes" columns={["Job", "When", "Slots", "Cause", "Pause"]} rows={resizes} row={(each) => (
        <tr key={`${each.execId} ${each.number}`} data-exec={each.execId} data-cause={each.cause} data-from={each.fromSlots} data-to={each.toSlots}>
          <JobCell execId={each.execId} closed={model.closed(each.execId)} />
          <td><Time at={each.time} /></td>
          <td className="num nowrap">{each.fromSlots} → {each.toSlots}</td>
          <td>{each.detail || causeWords(each.cause)}</td>
          <td className="num nowrap">{each.pauseSeconds === null ? "–" : duration(each.pauseSeconds)}</td>
        </tr>
      )} />
      <Twin name="Failures" columns={["Job", "When", "Where", "What"]} rows={failures} row={(each) => (
        <tr
          key={`${each.execId} ${each.node} ${each.slot} ${each.time}`} data-exec={each.execId} data-node={each.node ?? ""}
          data-slot={each.slot ?? ""}
        >
          <JobCell execId={each.execId} closed={model.closed(each.execId)} />
          <td><Time at={each.time} /></td>
          <td>{each.node === null ? "–" : `${each.node}${each.slot === null ? "" : ` · ${each.slot}`}`}</td>
          <td>{each.message ?? failureWords(each.kind)}</td>
        </tr>
      )} />
    </div>
  );
});

function Twin<T>(
  { name, columns, rows, row }: {
    readonly name: string; readonly columns: readonly string[]; readonly rows: readonly T[];
    readonly row: (each: T) => React.ReactNode;
  },
) {
  const [most, setMost] = useState(ROWS);
  return (
    <Panel title={`${name} (${rows.length})`} flush>
      <div className={styles.tableBox} tabIndex={0} role="region" aria-label={`${name}, table`}>
        <table aria-label={name} className={styles.table}>
          <thead>
            <tr>{columns.map((column) => <th key={column} scope="col">{column}</th>)}</tr>
          </thead>
          <tbody>
            {rows.length === 0 && <tr><td colSpan={columns.length} className="quiet">None in this stretch of time.</td></tr>}
            {rows.slice(0, most).map(row)}
          </tbody>
        </table>
        {rows.length > most && (
          <div className={styles.more}>
            <Button size="small" onClick={() => setMost(most + ROWS)}>Show {Math.min(ROWS, rows.length - most)} more of {rows.length - most}</Button>
          </div>
        )}
      </div>
    </Panel>
  );
}

function JobCell({ execId, closed }: { readonly execId: string; readonly closed: string | null }) {
  const swatch = <i className={`job-swatch ${jobClass(execId)}`} />;
  return (
    <th scope="row">
      {closed === null ? (
        <Link to={`/jobs/${execId}`} className={styles.jobLink}>{swatch}{execId}</Link>
      ) : (
        <span className={styles.jobLink} title={closed}>{swatch}{execId}</span>
      )}
    </th>
  );
}
