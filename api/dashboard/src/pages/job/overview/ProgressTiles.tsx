/** Step, epoch, loss, throughput, time left: the numbers one looks for first. Of a gang: its processes and slots. */

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { metricsQuery } from "../../../api/jobs";
import { isOver, type Job, type Metrics } from "../../../api/types";
import { Sparkline } from "../../../charts/Sparkline";
import { count, duration, number, percentDone } from "../../../components/format";
import { Bar } from "../../../components/ProgressBar";
import { Lasting } from "../../../components/Time";
import { Workers } from "../../../components/Workers";
import { metricWord, notElastic, validationName } from "../words";
import { type MetricFact, metricsOf } from "./metrics";
import styles from "./Overview.module.css";

export function ProgressTiles({ job }: { readonly job: Job }) {
  const { progress } = job;
  const metrics = useQuery(metricsQuery(job.id)).data;
  const share = job.share_done ?? null;
  const total = progress.steps_total ?? job.steps_total;
  const epochs = progress.epochs ?? job.epochs;
  const running = job.state === "RUNNING";
  const mean = job.mean_samples_per_second;
  return (
    <div className={styles.progress}>
      <div className={styles.bar}>
        <div className={styles.share}>
          <strong className="num">{share === null ? "–" : percentDone(share)}</strong>
          <span className="num">
            {progress.step != null ? `step ${count(progress.step)}${total != null ? ` of ${count(total)}` : ""}` : "no step yet"}
            {job.ended_early !== null
              ? ` · ${job.ended_early}`
              : progress.epoch != null && ` · epoch ${count(progress.epoch)}${epochs != null ? ` of ${count(epochs)}` : ""}`}
          </span>
          <span className={styles.left}>
            {running && job.eta_seconds != null ? `about ${duration(job.eta_seconds)} left` : null}
          </span>
        </div>
        <Bar share={share ?? 0} label="Progress" done={job.state === "FINISHED"} />
      </div>
      <dl className={styles.tiles}>
        <Tile name="Workers">
          <Workers job={job} />
        </Tile>
        {metricsOf(job).map((fact) => (
          <MetricTile key={fact.name} fact={fact} metrics={metrics} />
        ))}
        <Tile
          name="Samples per second"
          also={isOver(job.state) ? ["mean of its training"] : mean != null ? [`mean ${number(mean)}`] : []}
          line={metrics && <Curve label="Samples per second" values={metrics.samples_per_second} x={metrics.step} />}
        >
          {progress.samples_per_second != null ? number(progress.samples_per_second) : "–"}
        </Tile>
        <Tile name={job.finished_at === null ? "Since its start" : "From start to end"}>
          {job.started_at === null ? "–" : <Lasting from={job.started_at} to={job.finished_at} />}
        </Tile>
      </dl>
    </div>
  );
}

/** What is known of a gang: its script keeps its steps to itself. */
export function GangTiles({ job }: { readonly job: Job }) {
  return (
    <div className={styles.progress}>
      <p className={styles.gang}>{notElastic(job)}</p>
      <dl className={styles.tiles}>
        <Tile name="Slots">
          <Workers job={job} />
        </Tile>
        <Tile name="Processes">
          <Link to={`/jobs/${job.id}/processes`}>{count(job.processes ?? 0)}</Link>
        </Tile>
        <Tile name="Restarts used">{job.max_restarts > 0 ? `${job.restarts} of ${job.max_restarts}` : "none allowed"}</Tile>
        <Tile name={job.finished_at === null ? "Since its start" : "From start to end"}>
          {job.started_at === null ? "–" : <Lasting from={job.started_at} to={job.finished_at} />}
        </Tile>
      </dl>
    </div>
  );
}

/** A metric of the training, and beside it that of its validations. */
function MetricTile({ fact, metrics }: { readonly fact: MetricFact; readonly metrics: Metrics | undefined }) {
  const { name, trained, validated, best } = fact;
  const values = name === "loss" ? metrics?.loss : metrics?.metrics[name];
  const also = validated === undefined ? [] : [`${validationName(name)} ${valueWord(validated)}`, best];
  return (
    <Tile
      name={metricWord(name)}
      line={metrics && values && <Curve label={metricWord(name)} values={values} x={metrics.step} />}
      also={also.filter(Boolean)}
    >
      {valueWord(trained)}
    </Tile>
  );
}

function valueWord(value: number | null | undefined): string {
  return value == null ? "–" : number(value);
}

export function Tile({
  name,
  line,
  also = [],
  children,
}: {
  readonly name: string;
  readonly line?: ReactNode;
  /** Lines below the value. */
  readonly also?: readonly string[];
  readonly children: ReactNode;
}) {
  return (
    <div className={styles.tile}>
      <dt>{name}</dt>
      <dd>
        <span className={styles.value}>{children}</span>
        {line}
      </dd>
      {also.map((each) => (
        <dd key={each} className={styles.also}>
          {each}
        </dd>
      ))}
    </div>
  );
}

function Curve({
  label,
  values,
  x,
}: {
  readonly label: string;
  readonly values: readonly (number | null)[];
  readonly x: readonly number[];
}) {
  const known = values.filter((value) => value !== null);
  if (known.length < 3) return null;
  return <Sparkline label={`${label} over the training`} values={values} x={x} width={60} height={26} />;
}
