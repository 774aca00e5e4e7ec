/** The framework catalogue, to read. Admins change it by the command line. */

import { useQuery } from "@tanstack/react-query";

import { frameworksQuery } from "../../api/frameworks";
import { useIsAdmin } from "../../api/session";
import type { Framework } from "../../api/types";
import { Badge } from "../../components/Badge";
import { Command } from "../../components/Command";
import { PageHead } from "../../components/Page";
import { Panel } from "../../components/Panel";
import { ProblemNote } from "../../components/ProblemNote";
import { Skeleton } from "../../components/Skeleton";
import { Ago } from "../../components/Time";
import { sentence } from "../../components/format";
import { commandText } from "../submit/words";
import styles from "./Frameworks.module.css";

export function FrameworksPage() {
  const { data, error, refetch } = useQuery(frameworksQuery);
  const admin = useIsAdmin();
  return (
    <>
      <PageHead title="Frameworks" name="Frameworks" sub="What a job may name after --exec-start, and what is started for it" />
      {error && !data ? (
        <ProblemNote error={error} onRetry={() => void refetch()} />
      ) : !data ? (
        <Skeleton lines={6} height={28} />
      ) : (
        <div className={styles.page}>
          <Panel title={`Catalogue (${data.length})`} flush>
            <div className={styles.scroll} tabIndex={0} role="region" aria-label="Catalogue of frameworks">
              <table aria-label="Frameworks" className={styles.table}>
                <thead>
                  <tr>
                    {["Name", "Kind", "Processes", "Command", "Added by"].map((title) => (
                      <th key={title} scope="col">
                        {title}
                      </th>
                    ))}
                  </tr>
                </thead>
                <tbody>
                  {data.map((entry) => (
                    <Row key={entry.name} entry={entry} />
                  ))}
                </tbody>
              </table>
            </div>
          </Panel>
          {admin && (
            <Panel title="Add one">
              <div className={styles.add}>
                <p>An entry is a file with a name, a command and how many processes run it. To add or replace it:</p>
                <Command text="edt frameworks add FILE" />
              </div>
            </Panel>
          )}
        </div>
      )}
    </>
  );
}

const PROCESSES: Readonly<Record<Framework["processes"], string>> = {
  device: "one for each slot",
  worker: "one for each worker",
  job: "one for the job",
};

function Row({ entry }: { readonly entry: Framework }) {
  const most = entry.max_workers > 0 ? `, at most ${entry.max_workers}` : "";
  return (
    <tr data-framework={entry.name}>
      <th scope="row">
        <span className={styles.name}>{entry.name}</span>
        {entry.description && <span className={styles.description}>{sentence(entry.description)}</span>}
      </th>
      <td>
        <Badge tone={entry.elastic ? "accent" : "calm"}>{entry.elastic ? "Elastic" : "Gang"}</Badge>
      </td>
      <td>{entry.elastic ? "as many as there are slots for" : `${PROCESSES[entry.processes]}${most}`}</td>
      <td className={styles.command}>
        {entry.command.length > 0 ? <code>{commandText(entry.command)}</code> : entry.elastic ? "the script" : <code>--user-cmd</code>}
      </td>
      <td>
        {entry.added_by === null ? (
          <span className="quiet">built in</span>
        ) : (
          <>
            {entry.added_by}
            {entry.added_at !== null && (
              <>
                {", "}
                <Ago at={entry.added_at} />
              </>
            )}
          </>
        )}
      </td>
    </tr>
  );
}
