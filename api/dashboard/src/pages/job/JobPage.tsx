/** One job: its head with what may be done, and its tabs, each under a path of its own. */

import { useQuery } from "@tanstack/react-query";
import { CirclePause, CirclePlay, CircleStop, Download, ListPlus, Trash2 } from "lucide-react";
import { Navigate, useNavigate, useParams } from "react-router";

import { downloadResult, jobQuery, resultQuery } from "../../api/jobs";
import { asProblem } from "../../api/problem";
import { useMayChange } from "../../api/session";
import { isOver, type Job } from "../../api/types";
import { jobClass } from "../../charts/palette";
import { StateBadge } from "../../components/Badge";
import { Button } from "../../components/Button";
import { PageHead } from "../../components/Page";
import { Skeleton } from "../../components/Skeleton";
import { Tabs } from "../../components/Tabs";
import { bytes } from "../../components/format";
import { Ago } from "../../components/Time";
import { NotFoundPage } from "../problem/NotFoundPage";
import { ProblemPage } from "../problem/ProblemPage";
import { useJobActions } from "./actions";
import { ElasticityTab } from "./elasticity/ElasticityTab";
import styles from "./JobPage.module.css";
import { LogsTab } from "./logs/LogsTab";
import { OverviewTab } from "./overview/OverviewTab";
import { ProcessesTab } from "./processes/ProcessesTab";
import { SettingsTab } from "./settings/SettingsTab";
import { kindWords } from "./words";

const OVERVIEW = { value: "overview", label: "Overview", content: OverviewTab };
const ELASTICITY = { value: "elasticity", label: "Elasticity", content: ElasticityTab };
const PROCESSES = { value: "processes", label: "Processes", content: ProcessesTab };
const LAST = [
  { value: "logs", label: "Logs", content: LogsTab },
  { value: "settings", label: "Settings", content: SettingsTab },
];
const TABS: Readonly<Record<Job["kind"], readonly (typeof OVERVIEW)[]>> = {
  elastic: [OVERVIEW, ELASTICITY, ...LAST],
  gang: [OVERVIEW, PROCESSES, ...LAST],
};

export function JobPage() {
  const { id = "", tab = "overview" } = useParams();
  const job = useQuery(jobQuery(id));
  if (tab === "overview" && location.pathname.endsWith("/overview")) return <Navigate to={`/jobs/${id}`} replace />;
  if (![OVERVIEW, ELASTICITY, PROCESSES, ...LAST].some(({ value }) => value === tab)) return <NotFoundPage />;
  const problem = job.error && asProblem(job.error);
  if (problem?.status === 404) return <NotFoundPage />; // never there, or removed while one looked on
  if (job.data && !TABS[job.data.kind].some(({ value }) => value === tab)) return <Navigate to={`/jobs/${id}`} replace />;
  if (job.data) return <Opened job={job.data} tab={tab} />;
  if (problem) return <ProblemPage problem={problem} onRetry={() => void job.refetch()} />;
  return <Skeleton lines={6} height={18} />;
}

function Opened({ job, tab }: { readonly job: Job; readonly tab: string }) {
  const navigate = useNavigate();
  const actions = useJobActions(() => void navigate("/jobs"));
  const mayChange = useMayChange();
  const over = isOver(job.state);
  const tabs = TABS[job.kind];
  const Content = tabs.find(({ value }) => value === tab)?.content ?? OverviewTab;
  return (
    <>
      <PageHead
        name={`${job.id} ${job.app_name}`}
        title={
          <>
            <i className={`job-swatch ${jobClass(job.id)}`} aria-hidden />
            {job.id}{" "}
            <span className={styles.name} title={job.app_name}>
              {job.app_name}
            </span>
          </>
        }
        sub={
          <>
            <span role="status" aria-label="State">
              <StateBadge job={job} />
            </span>
            <span>
              {kindWords(job)} of <strong>{job.owner}</strong>
            </span>
            <span>
              submitted <Ago at={job.created_at} />
            </span>
          </>
        }
      >
        {job.results_removed === null && <ResultButton job={job} />}
        {mayChange && job.kind === "elastic" && (
          <Button icon={ListPlus} disabled={job.stop_requested_at !== null && !over} onClick={() => actions.ask("extend", job)}>
            Extend
          </Button>
        )}
        {mayChange && !over && (
          <Button
            icon={job.paused_at === null ? CirclePause : CirclePlay}
            disabled={job.stop_requested_at !== null}
            onClick={() => actions.ask(job.paused_at === null ? "pause" : "resume", job)}
          >
            {job.paused_at === null ? "Pause" : "Resume"}
          </Button>
        )}
        {mayChange && !over && (
          <Button icon={CircleStop} disabled={job.stop_requested_at !== null} onClick={() => actions.ask("stop", job)}>
            Stop
          </Button>
        )}
        {mayChange && (
          <Button look="danger" icon={Trash2} onClick={() => actions.ask("remove", job)}>
            Remove
          </Button>
        )}
      </PageHead>
      <Tabs
        label="About this job"
        tabs={tabs}
        value={tab}
        onChange={(next) => void navigate(next === "overview" ? `/jobs/${job.id}` : `/jobs/${job.id}/${next}`)}
      >
        <Content job={job} />
      </Tabs>
      {actions.dialog}
    </>
  );
}

function ResultButton({ job }: { readonly job: Job }) {
  const { data } = useQuery(resultQuery(job));
  const missing = job.attempts === 0 ? "It has not run yet." : (data?.missing ?? null);
  const size = data?.bytes ? `A zip of ${bytes(data.bytes)}` : "What it saved, as a zip";
  return (
    <Button icon={Download} disabled={missing !== null} title={missing ?? size} onClick={() => downloadResult(job.id)}>
      Download result
    </Button>
  );
}
