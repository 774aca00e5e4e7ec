/** A job's log, file by file, as it grows. The file and the filter stand in the address. */

import { useQuery } from "@tanstack/react-query";
import { ArrowDownToLine, ChevronDown, Download, FolderX, Search, WrapText } from "lucide-react";
import { useDeferredValue, useMemo, useRef, useState } from "react";
import { useSearchParams } from "react-router";

import { logFilesQuery } from "../../../api/jobs";
import { isOver, type Job, type LogFile } from "../../../api/types";
import { Button } from "../../../components/Button";
import { EmptyState } from "../../../components/EmptyState";
import { bytes, count, plural, sentence } from "../../../components/format";
import { ProblemNote } from "../../../components/ProblemNote";
import { Segments } from "../../../components/Segments";
import { Skeleton } from "../../../components/Skeleton";
import { toast } from "../../../components/toasts";
import { type Followed, useLog, wholeLog } from "./follow";
import { LogLines } from "./LogLines";
import styles from "./Logs.module.css";
import { failedRank } from "./ranks";
import { RankStreams } from "./RankStreams";
import { matching, startOf } from "./tail";

const MAIN: Readonly<Record<string, string>> = { training: "Training", out: "Output", err: "Errors", elog: "Logger" };

/**
 * The file to show where the address names none: the log of the training, or the first of the driver's, or of a gang's
 * rank 0, that holds anything; of a job that failed, why, and of a gang what the rank wrote that failed.
 */
function firstWritten(files: readonly LogFile[] | undefined, job: Job): string | null {
  const written = (name: string) => files?.some((file) => file.stream === name && file.bytes > 0);
  const rank = failedRank(job) ?? 0;
  const names = job.kind === "gang" ? [`rank-${rank}.out`, `rank-${rank}.err`, "elog"] : ["training", "elog", "out", "err"];
  return (job.state === "ERROR" ? [...names].sort((one, other) => Number(other.includes("err")) - Number(one.includes("err"))) : names).find(written) ?? null;
}

export function LogsTab({ job }: { readonly job: Job }) {
  if (job.results_removed === null) return <Logs job={job} />;
  return (
    <EmptyState icon={FolderX} title="There is no log any more">
      {sentence(job.results_removed)}
    </EmptyState>
  );
}

/** Links say `out` and `err` for whatever job; of a gang these are rank 0's. */
function streamOf(job: Job, named: string | null): string | null {
  return job.kind === "gang" && (named === "out" || named === "err") ? `rank-0.${named}` : named;
}

function Logs({ job }: { readonly job: Job }) {
  const [search, setSearch] = useSearchParams();
  const files = useQuery(logFilesQuery(job.id));
  const [follow, setFollow] = useState(true);
  const [wrap, setWrap] = useState(false);
  const first = useRef<string | null>(null);
  const written = firstWritten(files.data, job);
  // Once chosen it stays, whatever else begins to be written; but what a script prints first gives way to its training.
  if (job.kind === "gang" || written === "training" || isOver(job.state)) first.current ??= written;
  const stream = streamOf(job, search.get("stream")) ?? first.current ?? written ?? (job.kind === "gang" ? "rank-0.out" : "training");
  const filter = search.get("find") ?? "";
  if (files.error && !files.data) return <ProblemNote error={files.error} onRetry={() => void files.refetch()} />;
  if (!files.data) return <Skeleton lines={8} />;
  const change = (name: string, value: string) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        if (value === "") next.delete(name);
        else next.set(name, value);
        return next;
      },
      { replace: true },
    );
  const show = (next: string) => {
    setFollow(true);
    change("stream", next);
  };
  return (
    <div className={styles.logs}>
      <div className={styles.bar}>
        {job.kind === "gang" ? (
          <RankStreams job={job} files={files.data} stream={stream} onStream={show} />
        ) : (
          <Streams files={files.data} stream={stream} onStream={show} />
        )}
        <span className={styles.find}>
          <Search size={15} aria-hidden />
          <input
            type="search"
            aria-label="Filter lines"
            placeholder="Filter lines"
            value={filter}
            spellCheck={false}
            onChange={(event) => change("find", event.target.value)}
          />
        </span>
        <div className={styles.tools}>
          <label className={styles.switch} title="Stay at the end as the log grows">
            <input type="checkbox" role="switch" checked={follow} onChange={(event) => setFollow(event.target.checked)} />
            <ArrowDownToLine size={14} aria-hidden />
            Follow
          </label>
          <label className={styles.switch} title="Break long lines">
            <input type="checkbox" role="switch" checked={wrap} onChange={(event) => setWrap(event.target.checked)} />
            <WrapText size={14} aria-hidden />
            Wrap
          </label>
          <Save id={job.id} stream={stream} />
        </div>
      </div>
      <OneLog
        key={`${job.id} ${stream}`} // the bar above has none: what has the focus keeps it when another log is chosen
        job={job}
        size={files.data.find((file) => file.stream === stream)?.bytes ?? 0}
        stream={stream}
        filter={filter}
        wrap={wrap}
        follow={follow}
        onFollow={setFollow}
      />
    </div>
  );
}

function OneLog({
  job,
  size,
  stream,
  filter,
  wrap,
  follow,
  onFollow,
}: {
  readonly job: Job;
  readonly size: number;
  readonly stream: string;
  readonly filter: string;
  readonly wrap: boolean;
  readonly follow: boolean;
  readonly onFollow: (follow: boolean) => void;
}) {
  const [start, setStart] = useState(() => startOf(size));
  const log = useLog(job.id, stream, start, isOver(job.state));
  const wanted = useDeferredValue(filter);
  const { tail } = log;
  const { received } = tail;
  const all = useMemo(() => tail.all(), [tail, received]); // it grows in place: what it received tells its versions apart
  const shown = useMemo(() => matching(all, wanted), [all, wanted]);
  return (
    <>
      {log.phase === "refused" && log.problem && <ProblemNote error={log.problem} />}
      <div className={styles.frame}>
        {(start > 0 || tail.dropped > 0) && (
          <p className={styles.earlier}>
            {start > 0 ? `The first ${bytes(start)} are not shown. ` : `${count(tail.dropped)} earlier lines are not shown. `}
            {start > 0 && (
              <Button size="small" onClick={() => setStart(0)}>
                Read from the beginning
              </Button>
            )}
          </p>
        )}
        <LogLines
          lines={shown}
          held={tail.lines.length}
          received={tail.received}
          filter={wanted}
          wrap={wrap}
          follow={follow}
          onFollow={onFollow}
          empty={emptyWords(log, wanted, job, all.length)}
        />
        <p role="status" className={styles.foot}>
          <FollowState log={log} />
          <span>
            {wanted === "" ? plural(all.length, "line") : `${count(shown.length)} of ${plural(all.length, "line")}`} ·{" "}
            {bytes(tail.received)}
          </span>
        </p>
      </div>
    </>
  );
}

function Streams({
  files,
  stream,
  onStream,
}: {
  readonly files: readonly LogFile[];
  readonly stream: string;
  readonly onStream: (stream: string) => void;
}) {
  const engines = files.filter((file) => !(file.stream in MAIN));
  return (
    <div className={styles.streams}>
      <Segments
        label="Log of the driver"
        value={stream}
        onChange={onStream}
        choices={Object.entries(MAIN).map(([value, label]) => ({ value, label }))}
      />
      {engines.length > 0 && (
        <span className={styles.pick}>
          <select
            aria-label="Log of an engine"
            className={styles.engines}
            data-on={!(stream in MAIN)}
            value={stream in MAIN ? "" : stream}
            onChange={(event) => onStream(event.target.value || "out")}
          >
            <option value="">Engines …</option>
            {engines.map((file) => (
              <option key={file.stream} value={file.stream}>
                {file.stream} · {bytes(file.bytes)}
              </option>
            ))}
          </select>
          <ChevronDown size={14} aria-hidden />
        </span>
      )}
    </div>
  );
}

function Save({ id, stream }: { readonly id: string; readonly stream: string }) {
  const [busy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    try {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await wholeLog(id, stream));
      link.download = `${id}-${stream.includes(".") ? stream : `${stream}.log`}`;
      link.click();
      window.setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    } catch (error) {
      toast.problem(error);
    }
    setBusy(false);
  };
  return (
    <Button size="small" icon={Download} busy={busy} onClick={() => void save()}>
      Download log
    </Button>
  );
}

function FollowState({ log }: { readonly log: Followed }) {
  const words = {
    reading: "Reading",
    following: "Up to date; new lines come as they are written",
    reconnecting: `The API does not answer; goes on at byte ${count(log.tail.offset)}`,
    ended: "The job is over and the log complete",
    refused: "The API refused",
  }[log.phase];
  return <span data-phase={log.phase}>{words}</span>;
}

function emptyWords(log: Followed, filter: string, job: Job, lines: number): string {
  if (filter !== "" && lines > 0) return "No line holds this text.";
  if (log.phase === "reading") return "";
  return isOver(job.state) ? "Nothing was written here." : "Nothing is written here yet.";
}
