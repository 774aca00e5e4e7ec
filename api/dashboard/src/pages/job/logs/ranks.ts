/** The names of a gang's logs: `rank-3.out`, `rank-3.err`. Pure. */

import type { Job, LogFile } from "../../../api/types";

/** The rank that a log is of, and which of its two; null: the log is of no rank. */
export function rankOf(stream: string): { readonly rank: number; readonly kind: "out" | "err" } | null {
  const found = /^rank-(\d+)\.(out|err)$/.exec(stream);
  return found ? { rank: Number(found[1]), kind: found[2] as "out" | "err" } : null;
}

/** The rank of a gang whose end its message tells; null: the message is of none. */
export function failedRank(job: Pick<Job, "kind" | "message">): number | null {
  const found = job.kind === "gang" ? /^rank (\d+)\b/.exec(job.message ?? "") : null;
  return found ? Number(found[1]) : null;
}

/** The ranks that one may choose: all that the job has, and any that has written. */
export function ranksOf(job: Pick<Job, "processes">, files: readonly Pick<LogFile, "stream">[]): readonly number[] {
  const written = files.flatMap((file) => rankOf(file.stream)?.rank ?? []);
  const all = Array.from({ length: job.processes ?? 0 }, (_, rank) => rank);
  return [...new Set([...all, ...written])].sort((one, other) => one - other);
}
