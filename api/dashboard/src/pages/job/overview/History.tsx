/** Everything that happened to a job, newest first. */

import {
  ArrowDownRight,
  ArrowUpRight,
  Check,
  CircleDot,
  CirclePause,
  CirclePlay,
  CircleStop,
  Flag,
  Hourglass,
  ListPlus,
  type LucideIcon,
  RotateCcw,
  ShieldAlert,
  SlidersHorizontal,
  TriangleAlert,
} from "lucide-react";
import { useState } from "react";

import type { Event } from "../../../api/types";
import { Button } from "../../../components/Button";
import { plural } from "../../../components/format";
import { Time } from "../../../components/Time";
import styles from "./Overview.module.css";
import { folded } from "./states";

const FIRST = 40;

export function History({ events, cut }: { readonly events: readonly Event[]; readonly cut: boolean }) {
  const [whole, setWhole] = useState(false);
  const newest = folded(events);
  const shown = whole ? newest : newest.slice(0, FIRST);
  return (
    <>
      <ul aria-label="History" className={styles.history}>
        {shown.map(({ event, like }) => {
          const { icon: Icon, tone } = signOf(event);
          return (
            <li key={event.seq} data-kind={event.kind} data-tone={tone}>
              <span className={styles.sign}>
                <Icon size={14} aria-hidden />
              </span>
              <span className={styles.what}>{wordsOf(event)}{like > 0 && <span className="quiet"> · {plural(like, "earlier one", "earlier ones")}</span>}</span>
              {event.fence > 1 && <span className="quiet nowrap">attempt {event.fence}</span>}
              <Time at={event.time} />
            </li>
          );
        })}
      </ul>
      {(shown.length < newest.length || cut) && (
        <div className={styles.rest}>
          {shown.length < newest.length && (
            <Button size="small" onClick={() => setWhole(true)}>
              Show {plural(newest.length - shown.length, "earlier event")}
            </Button>
          )}
          {cut && <span className="quiet">The newest events are in the API alone: this list is too long for a page.</span>}
        </div>
      )}
    </>
  );
}

function wordsOf(event: Event): string {
  return event.message === "SUBMITTED" ? "submitted" : event.message || event.kind;
}

/** What kind of thing it was, at a glance; the words say the rest. */
function signOf(event: Event): { icon: LucideIcon; tone: string } {
  switch (event.kind) {
    case "resize": {
      const grows = Number(event.data["to"]) > Number(event.data["from"]);
      if (String(event.data["cause"]).endsWith("-lost")) return { icon: TriangleAlert, tone: "bad" };
      return grows ? { icon: ArrowUpRight, tone: "good" } : { icon: ArrowDownRight, tone: "warn" };
    }
    case "state":
      return { icon: Flag, tone: event.data["after"] === "ERROR" ? "bad" : "accent" };
    case "waiting":
    case "capped":
      return { icon: Hourglass, tone: "calm" };
    case "paused":
      return { icon: CirclePause, tone: "warn" };
    case "resumed":
      return { icon: CirclePlay, tone: "good" };
    case "bounds":
    case "priority":
      return { icon: SlidersHorizontal, tone: "accent" };
    case "extended":
    case "resumed-from":
      return { icon: ListPlus, tone: "accent" };
    case "stop-requested":
      return { icon: CircleStop, tone: "warn" };
    case "attempt":
      return event.data["kind"] === "finished" ? { icon: Check, tone: "good" } : { icon: RotateCcw, tone: "warn" };
    case "corrupted":
      return { icon: TriangleAlert, tone: "bad" };
    case "guarantee-ended":
    case "replicas-compared":
      return { icon: ShieldAlert, tone: "warn" };
    case "head-node":
    case "home": // of earlier releases
    case "restarted":
      return { icon: RotateCcw, tone: "warn" };
    default:
      return { icon: CircleDot, tone: "calm" };
  }
}
