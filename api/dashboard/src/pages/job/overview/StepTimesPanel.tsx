/** Where a step's time goes: a stacked bar for each engine, how much of it computes, and which engine is slow. */

import { useQuery } from "@tanstack/react-query";
import { Snail } from "lucide-react";
import { useState } from "react";

import { stepTimesQuery } from "../../../api/jobs";
import { isOver, type Job, type MeanTimes, type StepTimes } from "../../../api/types";
import { TableToggle } from "../../../charts/TableToggle";
import { Button } from "../../../components/Button";
import { count, percent, plural } from "../../../components/format";
import { Panel } from "../../../components/Panel";
import overview from "./Overview.module.css";
import { firstRows, PHASES, PHASE_WORDS, type Row, rowsOf, stepTime, totalSeconds, waitWords } from "./stepTimes";
import styles from "./StepTimes.module.css";

const TITLE = "Where a step's time goes";
const FIRST = 16;

export function StepTimesPanel({ job }: { readonly job: Job }) {
  const found = useQuery({ ...stepTimesQuery(job.id), enabled: job.efficiency !== null }).data;
  const [asTable, setAsTable] = useState(false);
  const [whole, setWhole] = useState(false);
  if (!found || found.efficiency === null || found.step_seconds === null) return null;
  const over = isOver(job.state);
  const rows = rowsOf(found);
  const shown = whole ? rows : firstRows(rows, FIRST);
  return (
    <Panel title={TITLE} tools={<TableToggle of={TITLE} on={asTable} onChange={setAsTable} />}>
      <div className={styles.times}>
        <p className={overview.share}>
          <strong className="num">{percent(found.efficiency)}</strong>
          <span>of the engines' time {over ? "was" : "is"} forward and backward pass</span>
          <span className={`${overview.left} num`}>
            a step {over ? "took" : "takes"} {stepTime(found.step_seconds)} · mean of {plural(found.steps, "step")}
          </span>
        </p>
        <Remarks found={found} over={over} />
        {asTable ? <Table rows={shown} /> : <Bars rows={shown} longest={Math.max(...rows.map(({ times }) => totalSeconds(times)))} />}
        {shown.length < rows.length && (
          <Button size="small" onClick={() => setWhole(true)}>
            Show {plural(rows.length - shown.length, "more engine")}
          </Button>
        )}
      </div>
    </Panel>
  );
}

function Remarks({ found, over }: { readonly found: StepTimes; readonly over: boolean }) {
  const waits = waitWords(found, over);
  return (
    <>
      {found.remarks.map((remark) => (
        <div key={remark} className={overview.remark} data-tone="warn">
          <Snail size={18} aria-hidden />
          <div>
            <p>{remark}</p>
          </div>
        </div>
      ))}
      {waits !== null && <p className={styles.waits}>{waits}</p>}
    </>
  );
}

function Bars({ rows, longest }: { readonly rows: readonly Row[]; readonly longest: number }) {
  return (
    <>
      <ul aria-label={TITLE} className={styles.rows}>
        {rows.map((row) => (
          <li key={row.key} data-slow={row.isSlow}>
            <span className={styles.name}>
              {row.name} <span className="quiet">{row.place}</span>
            </span>
            <span className={styles.bar} role="img" aria-label={words(row.times)}>
              {PHASES.map((phase) => (
                <i
                  key={phase}
                  data-phase={phase}
                  title={`${PHASE_WORDS[phase]} ${stepTime(row.times.seconds[phase])}`}
                  style={{ width: `${(100 * row.times.seconds[phase]) / longest}%` }}
                />
              ))}
            </span>
            <span className={`${styles.share} num`} title="Forward and backward pass">
              {percent(row.times.efficiency)}
            </span>
          </li>
        ))}
      </ul>
      <ul aria-label="Phases" className={styles.legend}>
        {PHASES.map((phase) => (
          <li key={phase}>
            <i data-phase={phase} aria-hidden />
            {PHASE_WORDS[phase]}
          </li>
        ))}
      </ul>
    </>
  );
}

function words(times: MeanTimes): string {
  return PHASES.map((phase) => `${PHASE_WORDS[phase]} ${stepTime(times.seconds[phase])}`).join(", ");
}

function Table({ rows }: { readonly rows: readonly Row[] }) {
  return (
    <div className={styles.scroll} tabIndex={0}>
      <table aria-label={TITLE} className={styles.table}>
        <thead>
          <tr>
            <th scope="col">Engine</th>
            <th scope="col">Micro-batches</th>
            <th scope="col">Step</th>
            {PHASES.map((phase) => (
              <th key={phase} scope="col">
                {PHASE_WORDS[phase]}
              </th>
            ))}
            <th scope="col">Efficiency</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, name, place, times }) => (
            <tr key={key}>
              <th scope="row">
                {name} <span className="quiet">{place}</span>
              </th>
              <td>{Number.isInteger(times.micro_batches) ? count(times.micro_batches) : times.micro_batches.toFixed(2)}</td>
              <td>{stepTime(totalSeconds(times))}</td>
              {PHASES.map((phase) => (
                <td key={phase}>{stepTime(times.seconds[phase])}</td>
              ))}
              <td>{percent(times.efficiency)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
