/** What is under the pointer, beside it. */

import { causeWords, failureWords } from "../../charts/causes";
import { jobClass } from "../../charts/palette";
import { stateWord } from "../../components/Badge";
import { dateTime, duration, plural, utc } from "../../components/format";
import type { JobState } from "../../api/types";
import type { TimelineModel } from "./model";
import styles from "./Timeline.module.css";
import type { Hover } from "./TimelineCanvas";

const WIDTH = 270;
const HEIGHT = 220;

export function HoverCard({ hover, model, stage }: {
  readonly hover: Hover; readonly model: TimelineModel;
  /** The chart, in which the card stands. */
  readonly stage: HTMLElement | null;
}) {
  const execId = hover.kind === "bar" ? hover.bar.execId : hover.mark.fact.execId;
  const job = model.jobs.get(execId);
  const left = hover.x + WIDTH + 24 > (stage?.clientWidth ?? 0) ? hover.x - WIDTH - 14 : hover.x + 14;
  // Above the pointer where there is no room below it.
  const high = (stage?.getBoundingClientRect().top ?? 0) + hover.y + HEIGHT > innerHeight;
  return (
    <div className={styles.card} data-above={high} style={{ left, top: hover.y + (high ? -12 : 14), width: WIDTH }} aria-hidden>
      <p className={styles.cardHead}>
        <i className={`job-swatch ${jobClass(execId)}`} />
        <strong>{execId}</strong>
        {job?.app_name && <span className="truncate">{job.app_name}</span>}
      </p>
      <dl>
        {job?.owner && <Fact name="Owner">{job.owner}</Fact>}
        {job?.kind === "gang" && <Fact name="Kind">gang, not elastic</Fact>}
        {job && <Fact name="State">{stateWord(job.state as JobState)}</Fact>}
        {hover.kind === "bar" ? <BarFacts hover={hover} model={model} /> : <MarkFacts hover={hover} />}
      </dl>
      <p className={styles.cardFoot}>{model.closed(execId) ?? "Click to open the job"}</p>
    </div>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: React.ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function BarFacts({ hover: { bar, time }, model }: { readonly hover: Hover & { kind: "bar" }; readonly model: TimelineModel }) {
  const now = model.now();
  const size = model.bars.job(bar.execId).filter((each) => each.from <= time && (each.to ?? now) >= time).length;
  return (
    <>
      <Fact name="Size">{plural(size, "slot")} at that moment</Fact>
      <Fact name="Slot">{bar.node} · {bar.slot}</Fact>
      <Fact name="Held"><span title={utc(bar.from)}>{dateTime(bar.from)}</span></Fact>
      <Fact name="For">{duration((bar.to ?? now) - bar.from)}{bar.to === null ? ", still held" : ""}</Fact>
      {bar.started === null && bar.to === null && <Fact name={model.isGang(bar.execId) ? "Process" : "Engine"}>starting</Fact>}
    </>
  );
}

function MarkFacts({ hover: { mark } }: { readonly hover: Hover & { kind: "mark" } }) {
  if (mark.kind === "failure") {
    const { kind, message, node, slot, time } = mark.fact;
    return (
      <>
        <Fact name="Failure">{failureWords(kind)}</Fact>
        {node && <Fact name="Slot">{node}{slot === null ? "" : ` · ${slot}`}</Fact>}
        <Fact name="When">{dateTime(time)}</Fact>
        {message && <Fact name="Message">{message}</Fact>}
      </>
    );
  }
  const { fromSlots, toSlots, cause, detail, pauseSeconds, recomputed, time } = mark.fact;
  return (
    <>
      <Fact name="Resize">{fromSlots} → {plural(toSlots, "slot")}</Fact>
      <Fact name="Cause">{detail || causeWords(cause)}</Fact>
      <Fact name="When">{dateTime(time)}</Fact>
      {pauseSeconds !== null && <Fact name="Pause">{duration(pauseSeconds)}</Fact>}
      {recomputed !== null && recomputed > 0 && <Fact name="Done again">{plural(recomputed, "micro-batch", "micro-batches")}</Fact>}
    </>
  );
}
