/** Every resize as a row, and one of them in full. */

import { ArrowDownRight, ArrowUpRight, ChevronRight, TriangleAlert } from "lucide-react";

import type { Resize } from "../../../api/types";
import { Button } from "../../../components/Button";
import { CopyButton } from "../../../components/CopyButton";
import { Dialog } from "../../../components/Dialog";
import { count, duration } from "../../../components/format";
import { Facts, Panel } from "../../../components/Panel";
import { Time } from "../../../components/Time";
import { causeWord } from "../words";
import { kindOf, milestones } from "./curves";
import styles from "./Elasticity.module.css";

const SIGNS = { grow: ArrowUpRight, shrink: ArrowDownRight, failure: TriangleAlert, event: ChevronRight };

export function Resizes({
  resizes,
  opened,
  onOpen,
}: {
  readonly resizes: readonly Resize[];
  readonly opened: number | null;
  readonly onOpen: (number: number | null) => void;
}) {
  const shown = resizes.find((each) => each.number === opened);
  return (
    <Panel title="Resizes" flush>
      <div className={styles.scroll} tabIndex={0} role="region" aria-label="Resizes, newest first">
        <table className={styles.table}>
          <thead>
            <tr>
              <th scope="col">When</th>
              <th scope="col">Cause</th>
              <th scope="col">Slots</th>
              <th scope="col">Step</th>
              <th scope="col">Pause</th>
              <th scope="col">Done again</th>
              <th scope="col">Took</th>
              <th scope="col">
                <span className="visually-hidden">Details</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {[...resizes].reverse().map((resize) => (
              <Row key={resize.number} resize={resize} onOpen={() => onOpen(resize.number)} />
            ))}
          </tbody>
        </table>
      </div>
      {shown && <Detail resize={shown} onClose={() => onOpen(null)} />}
    </Panel>
  );
}

function Row({ resize, onOpen }: { readonly resize: Resize; readonly onOpen: () => void }) {
  const kind = kindOf(resize);
  const Sign = SIGNS[kind];
  const end = resize.first_step_at ?? resize.gone_at;
  return (
    <tr data-resize={resize.number} data-cause={resize.cause} onClick={onOpen}>
      <td>
        <Time at={resize.decided_at} />
      </td>
      <td>
        <span className={styles.cause}>
          <span className={styles.sign} data-kind={kind}>
            <Sign size={13} aria-hidden />
          </span>
          <span className={styles.why}>
            {causeWord(resize.cause)}
            <small title={resize.detail}>{resize.detail}</small>
          </span>
        </span>
      </td>
      <td>
        {resize.from_slots} → {resize.to_slots}
      </td>
      <td>{resize.step === null ? "–" : count(resize.step)}</td>
      <td>{resize.pause_seconds === null ? "–" : duration(resize.pause_seconds)}</td>
      <td>{resize.recomputed ? count(resize.recomputed) : "0"}</td>
      <td title="From the decision to the first step that counts, or to the last process gone">
        {end === null ? "–" : duration(end - resize.decided_at)}
      </td>
      <td>
        <Button look="ghost" size="small" icon={ChevronRight} aria-label={`Details of resize ${resize.number}`} onClick={onOpen} />
      </td>
    </tr>
  );
}

function Detail({ resize, onClose }: { readonly resize: Resize; readonly onClose: () => void }) {
  const steps = milestones(resize);
  const longest = Math.max(...steps.map((each) => each.after), 0.001);
  const share = (after: number): string => `${Math.max(0, Math.min(1, after / longest)) * 100}%`;
  return (
    <Dialog title={`Resize ${resize.number}: ${resize.from_slots} → ${resize.to_slots} slots`} onClose={onClose} side>
      <div className={styles.detail}>
        <p>{resize.detail || causeWord(resize.cause)}</p>
        <Facts
          facts={[
            ["Cause", causeWord(resize.cause)],
            ["Attempt", resize.fence],
            resize.generation === null ? null : ["Generation", resize.generation],
            resize.step === null ? null : ["At step", count(resize.step)],
            resize.workers === null ? null : ["Workers then", resize.workers],
            ["Pause", resize.pause_seconds === null ? "not known" : duration(resize.pause_seconds)],
            ["Done again", `${count(resize.recomputed ?? 0)} micro-batches`],
          ]}
        />
        <ol className={styles.steps}>
          {steps.map(({ name, time, after }, at) => (
            <li key={name}>
              <span>{name}</span>
              <span className={styles.after}>{after === 0 ? <Time at={time} /> : `+ ${duration(after)}`}</span>
              <span className={styles.track} aria-hidden>
                <i style={{ left: share(steps[at - 1]?.after ?? 0), right: `calc(100% - ${share(after)})` }} />
              </span>
            </li>
          ))}
        </ol>
        <details>
          <summary>As the API tells it</summary>
          <div className={styles.json}>
            <pre tabIndex={0}>{JSON.stringify(resize, null, 2)}</pre>
            <CopyButton text={JSON.stringify(resize, null, 2)} label="Copy as JSON" />
          </div>
        </details>
      </div>
    </Dialog>
  );
}
