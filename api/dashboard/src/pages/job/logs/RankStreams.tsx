/** Which log of a gang is shown: of which rank, its output or its errors; and the metric lines, if its script writes any. */

import { ChevronDown } from "lucide-react";

import type { Job, LogFile } from "../../../api/types";
import { bytes } from "../../../components/format";
import { Segments } from "../../../components/Segments";
import styles from "./Logs.module.css";
import { rankOf, ranksOf } from "./ranks";

export function RankStreams({
  job,
  files,
  stream,
  onStream,
}: {
  readonly job: Job;
  readonly files: readonly LogFile[];
  readonly stream: string;
  readonly onStream: (stream: string) => void;
}) {
  const shown = rankOf(stream);
  const rank = shown?.rank ?? 0;
  const of = (name: string): string => {
    const size = files.find((file) => file.stream === name)?.bytes ?? 0;
    return size > 0 ? ` · ${bytes(size)}` : "";
  };
  const kinds = [
    ...(files.some((file) => file.stream === "elog" && file.bytes > 0) ? [{ value: "elog", label: "Logger" }] : []),
    { value: "out", label: "Output" },
    { value: "err", label: "Errors" },
  ];
  const kind = shown?.kind ?? stream;
  return (
    <div className={styles.streams}>
      <span className={styles.pick}>
        <select
          aria-label="Rank"
          className={styles.engines}
          data-on={shown !== null}
          value={rank}
          onChange={(event) => onStream(`rank-${event.target.value}.${shown?.kind ?? "out"}`)}
        >
          {ranksOf(job, files).map((each) => (
            <option key={each} value={each}>
              Rank {each}
              {of(`rank-${each}.${shown?.kind ?? "out"}`)}
            </option>
          ))}
        </select>
        <ChevronDown size={14} aria-hidden />
      </span>
      <Segments
        label="Log of the rank"
        value={kind}
        onChange={(next) => onStream(next === "elog" ? next : `rank-${rank}.${next}`)}
        choices={kinds}
      />
    </div>
  );
}
