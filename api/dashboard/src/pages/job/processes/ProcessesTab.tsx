/** The processes of a gang: where each runs, since when, how it ended, and its log. */

import { useQuery } from "@tanstack/react-query";
import { Boxes, ScrollText } from "lucide-react";
import { Link } from "react-router";

import { ranksQuery } from "../../../api/jobs";
import { isOver, type Job, type Rank } from "../../../api/types";
import { Badge, type Tone } from "../../../components/Badge";
import { EmptyState } from "../../../components/EmptyState";
import { plural } from "../../../components/format";
import { Panel } from "../../../components/Panel";
import { ProblemNote } from "../../../components/ProblemNote";
import { Skeleton } from "../../../components/Skeleton";
import { Lasting, Time } from "../../../components/Time";
import { notElastic } from "../words";
import styles from "./Processes.module.css";

export function ProcessesTab({ job }: { readonly job: Job }) {
  const ranks = useQuery(ranksQuery(job.id));
  if (ranks.error && !ranks.data) return <ProblemNote error={ranks.error} onRetry={() => void ranks.refetch()} />;
  if (!ranks.data) return <Skeleton lines={5} />;
  if (ranks.data.items.length === 0) {
    return (
      <Panel>
        <EmptyState icon={Boxes} title="No process has been started yet" command={`edt get ${job.id}`}>
          {job.waiting?.reason ?? (isOver(job.state) ? "It ended before any was." : notElastic(job))}
        </EmptyState>
      </Panel>
    );
  }
  return (
    <div className={styles.tab}>
      <p className={styles.words}>{notElastic(job)}</p>
      <Panel title={job.attempts > 1 ? `Processes of attempt ${job.attempts}` : "Processes"} flush>
        <div className={styles.scroll} tabIndex={0} role="region" aria-label="Processes by rank">
          <table aria-label="Processes" className={styles.table}>
            <thead>
              <tr>
                {["Rank", "State", "Node", "Slot numbers", "Started", "Ran for", "Log"].map((title) => (
                  <th key={title} scope="col">
                    {title}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {ranks.data.items.map((rank) => (
                <Row key={rank.rank} job={job} rank={rank} />
              ))}
            </tbody>
          </table>
        </div>
        {ranks.data.cut && <p className={styles.cut}>Only the first {plural(ranks.data.items.length, "process", "processes")} are shown.</p>}
      </Panel>
    </div>
  );
}

function Row({ job, rank }: { readonly job: Job; readonly rank: Rank }) {
  const { word, tone } = stateOf(rank);
  return (
    <tr data-rank={rank.rank} data-kind={rank.kind ?? ""}>
      <th scope="row">{rank.rank}</th>
      <td>
        <Badge tone={tone}>{word}</Badge>
      </td>
      <td>
        <Link to={`/nodes/${encodeURIComponent(rank.node)}`}>{rank.node}</Link>
      </td>
      <td>{rank.slots.join(", ")}</td>
      <td>{rank.started_at === null ? "–" : <Time at={rank.started_at} />}</td>
      <td>{rank.started_at === null ? "–" : <Lasting from={rank.started_at} to={rank.ended_at} />}</td>
      <td>
        <Link className={styles.log} to={`/jobs/${job.id}/logs?stream=rank-${rank.rank}.out`} aria-label={`Log of rank ${rank.rank}`}>
          <ScrollText size={14} aria-hidden />
          Log
        </Link>
      </td>
    </tr>
  );
}

const ENDS: Readonly<Record<string, { word: string; tone: Tone }>> = {
  finished: { word: "Ended with 0", tone: "good" },
  "script-error": { word: "Failed", tone: "bad" },
  lost: { word: "Lost", tone: "bad" },
  stopped: { word: "Stopped", tone: "calm" },
  left: { word: "Ended as asked", tone: "calm" },
};

function stateOf(rank: Rank): { word: string; tone: Tone } {
  if (rank.ended_at === null) return { word: "Running", tone: "accent" };
  return ENDS[rank.kind ?? ""] ?? { word: rank.kind ?? "Ended", tone: "calm" };
}
