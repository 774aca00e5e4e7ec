/** What all resizes of a job cost together. */

import type { Job, Resize } from "../../../api/types";
import { Hint } from "../../../components/Hint";
import { count, duration } from "../../../components/format";
import { totals } from "./curves";
import styles from "./Elasticity.module.css";

export function ResizeTotals({ job, resizes }: { readonly job: Job; readonly resizes: readonly Resize[] }) {
  const sum = totals(resizes);
  const tiles = [
    { name: "Resizes", value: count(resizes.length), hint: "Changes of the number of slots, its start and end included." },
    { name: "Pause, in all", value: duration(sum.pause), hint: "Time in which the training stood still for a resize." },
    {
      name: "Done again",
      value: `${count(sum.recomputed)} micro-batches`,
      hint: "Computed a second time, since an engine died with them. Their result counts once.",
    },
    {
      name: "Samples lost",
      value: job.exactness.verdict === "not-exact" ? "see Facts" : "0",
      hint:
        job.exactness.verdict === "not-exact"
          ? job.exactness.reason
          : "Every sample counts exactly once in every epoch, whatever the number of workers.",
    },
    { name: "Engines or nodes lost", value: count(sum.losses), hint: "How often engines or a node were lost. Engines that were let go in order are not counted." },
  ];
  return (
    <dl className={styles.totals}>
      {tiles.map(({ name, value, hint }) => (
        <Hint key={name} text={hint}>
          <div tabIndex={0}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        </Hint>
      ))}
    </dl>
  );
}
