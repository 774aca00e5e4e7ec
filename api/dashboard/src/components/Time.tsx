/** A moment or a while, in local words with UTC on hover. */

import { useNow } from "../api/stream/live";
import { ago, dateTime, duration, utc } from "./format";

/** "21 Nov 14:03:22" */
export function Time({ at }: { readonly at: number }) {
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={utc(at)} className="num nowrap">
      {dateTime(at)}
    </time>
  );
}

/** "5 min ago", renewed as it grows old. */
export function Ago({ at, now }: { readonly at: number; readonly now?: number }) {
  const own = useNow(now === undefined ? 10_000 : 3_600_000);
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={`${dateTime(at)} · ${utc(at)}`} className="num nowrap">
      {ago(at, now ?? own)}
    </time>
  );
}

/** How long something took, or has taken so far. */
export function Lasting({ from, to }: { readonly from: number; readonly to: number | null }) {
  const now = useNow(to === null ? 1_000 : 3_600_000);
  return <span className="num nowrap">{duration((to ?? now) - from)}</span>;
}
