/** Why a job waits, or why it has as many slots as it has: the answer of the scheduler's own plan, part by part. */

import { useQuery } from "@tanstack/react-query";
import { RotateCw } from "lucide-react";

import { explanationQuery } from "../../../api/answers";
import type { Explained, Job } from "../../../api/types";
import { Button } from "../../../components/Button";
import { plural } from "../../../components/format";
import { Panel } from "../../../components/Panel";
import { ProblemNote } from "../../../components/ProblemNote";
import { Skeleton } from "../../../components/Skeleton";
import { Ago } from "../../../components/Time";
import { Changes } from "./Changes";
import { Entitled } from "./Entitled";
import { HoldsTiles, WaitsTiles, Worth } from "./Numbers";
import { Holders, NodeVerdicts } from "./Tables";
import { Reasons } from "./Reasons";
import styles from "./Why.module.css";

export function WhyPanel({ job }: { readonly job: Job }) {
  const { data, error, refetch, isFetching } = useQuery(explanationQuery(job));
  return (
    <Panel
      title={job.slots > 0 ? `Why it has ${plural(job.slots, "slot")}` : "Why it waits"}
      tools={
        data && (
          <>
            <span className="quiet">
              <Ago at={data.at} />
            </span>
            <Button size="small" look="ghost" icon={RotateCw} busy={isFetching} aria-label="Explain again" title="Explain again" onClick={() => void refetch()} />
          </>
        )
      }
    >
      {data ? (
        <Explanation job={job} told={data} />
      ) : error ? (
        <ProblemNote error={error} onRetry={() => void refetch()} />
      ) : (
        <Skeleton lines={4} />
      )}
    </Panel>
  );
}

export function Explanation({ job, told }: { readonly job: Job; readonly told: Explained }) {
  const { waits, holds, entitlement, nodes, expected } = told;
  return (
    <div className={styles.why}>
      {waits === null && holds === null && <p>{told.sentence}</p>}
      {waits && <WaitsTiles waits={waits} expected={expected} at={told.at} />}
      {holds && <HoldsTiles holds={holds} entitlement={entitlement} expected={expected} />}
      {expected && (waits ?? holds) && <p className={styles.words}>{expected.sentence}</p>}
      {holds && <Worth holds={holds} />}
      <Changes told={told} />
      {waits && <Holders title="What blocks it" of={waits.by} hidden={waits.hidden} />}
      {holds && <Holders title="Who holds slots that it could use" of={holds.takers} hidden={holds.hidden} />}
      {nodes && <NodeVerdicts nodes={nodes} />}
      {entitlement && <Entitled entitlement={entitlement} />}
      {told.phase === "waiting" && <Reasons job={job} />}
    </div>
  );
}
