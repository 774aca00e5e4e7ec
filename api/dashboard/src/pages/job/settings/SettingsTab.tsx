/** What a job was submitted with, and how to submit the same again. */

import { useState } from "react";

import { useMayChange, useMe } from "../../../api/session";
import type { Job } from "../../../api/types";
import { Command } from "../../../components/Command";
import { CopyButton } from "../../../components/CopyButton";
import { Facts, Panel } from "../../../components/Panel";
import { Tabs } from "../../../components/Tabs";
import { asCurl, asEdt, option, submitted } from "./commands";
import styles from "./Settings.module.css";

export function SettingsTab({ job }: { readonly job: Job }) {
  const mayChange = useMayChange();
  const parsed = submitted(job.args);
  const folder = option(parsed, "--model-dir");
  const data = option(parsed, "--cs-datastore-meta", "--data-source");
  return (
    <div className={styles.columns}>
      <div className={styles.column}>
        <Panel title="What runs">
          <Facts
            facts={[
              parsed.command.length > 0 ? ["Command", <Words key="c" words={parsed.command} />] : null,
              ["Main script", <code key="m">{option(parsed, "--model-main") ?? "–"}</code>],
              folder === undefined ? null : ["Folder", <code key="f">{folder}</code>],
              ["Arguments", parsed.own.length > 0 ? <Words key="a" words={parsed.own} /> : <span className="quiet">none</span>],
              ["Framework", `${job.framework}, ${job.kind === "gang" ? "not elastic" : "elastic"}`],
              ["Image", job.image === null ? <span className="quiet">the platform’s</span> : <code>{job.image}</code>],
              ["Variables", parsed.environment.length > 0 ? <Words key="v" words={parsed.environment} /> : <span className="quiet">none</span>],
              data === undefined ? null : ["Data", <code key="d">{data}</code>],
            ]}
          />
        </Panel>
        <Panel title="Limits and seed">
          <Facts
            facts={[
              job.kind === "gang" ? ["Slots", `${job.max_workers}, from start to end`] : ["Workers", `${job.min_workers} to ${job.max_workers}`],
              job.worker_device_num > 1 ? ["As asked", `${job.num_worker} workers of ${job.worker_device_num} slots`] : null,
              ["Restarts", job.max_restarts === 0 ? "none after an exception of its script" : `at most ${job.max_restarts}`],
              job.kind === "gang" ? null : ["Seed", job.seed],
              ["Threads", `${job.threads} for each ${job.kind === "gang" ? "slot" : "micro-batch"}`],
              ["Work folder", <code key="w">{job.work_dir}</code>],
            ]}
          />
        </Panel>
      </div>
      <div className={styles.column}>
        {mayChange && <Again job={job} />}
        <WithoutEffect job={job} />
        <Panel title="Args as they came" tools={<CopyButton text={job.args} label="Copy the args" />}>
          <pre className={styles.args} tabIndex={0}>
            {job.args}
          </pre>
          {parsed.environment.length > 0 && <p className={styles.note}>Values of variables are masked.</p>}
        </Panel>
      </div>
    </div>
  );
}

function Again({ job }: { readonly job: Job }) {
  const [way, setWay] = useState("edt");
  const me = useMe();
  const parsed = submitted(job.args);
  const text = way === "edt" ? asEdt(parsed) : asCurl(parsed, job.args, window.location.origin, me.name);
  return (
    <Panel title="Submit the same again">
      <Tabs
        small
        label="Submit with"
        tabs={[
          { value: "edt", label: "edt" },
          { value: "curl", label: "curl" },
        ]}
        value={way}
        onChange={setWay}
      >
        <Command text={text} />
        {parsed.environment.length > 0 && <p className={styles.note}>{way === "edt" ? "The variables’ values come from your shell." : "Put the variables’ values in for ****."}</p>}
      </Tabs>
    </Panel>
  );
}

/** Options that were checked and recorded, and that do nothing here. */
function WithoutEffect({ job }: { readonly job: Job }) {
  const options = job.options.filter(({ effect }) => !effect);
  if (options.length === 0) return null;
  return (
    <Panel title="Options without effect">
      <Facts facts={options.map(({ name, values }) => [name, <Words key={name} words={values} />])} />
    </Panel>
  );
}

function Words({ words }: { readonly words: readonly string[] }) {
  return (
    <span className={styles.words}>
      {words.map((word, at) => (
        <code key={at}>{word}</code>
      ))}
    </span>
  );
}
