/** The numbers of an explanation at a glance: tiles, and what a job's next slot is worth beside the price of one. */

import type { Explained } from "../../../api/types";
import { dateTime, number, sentence } from "../../../components/format";
import { Tile } from "../overview/ProgressTiles";
import styles from "./Why.module.css";
import { errorWords, ruleWord, startWords, worthBar } from "./words";

type Waits = NonNullable<Explained["waits"]>;
type Holds = NonNullable<Explained["holds"]>;

export function WaitsTiles({ waits, expected, at }: { readonly waits: Waits; readonly expected: Explained["expected"]; readonly at: number }) {
  const first = expected?.first == null ? [] : [`at first ${dateTime(expected.first)}`];
  return (
    <dl className={styles.tiles}>
      <Tile name="Place" also={[waits.rank === 0 ? "it is paused" : `of ${waits.waiting} that wait`]}>
        {waits.rank === 0 ? "–" : waits.rank}
      </Tile>
      <Tile name="Needs to start" also={[`${waits.free} free now`]}>
        {waits.need}
      </Tile>
      <Tile name="Rule" also={waits.rule === "" ? [waits.sentence] : []}>
        <span className={styles.rule}>{ruleWord(waits.rule)}</span>
      </Tile>
      {expected && (
        <Tile
          name="Expected start"
          also={[
            ...(expected.start === null ? [] : [`${dateTime(expected.start)}${expected.coarse ? ", only from its place" : ""}`, ...first]),
            errorWords(expected.error),
          ]}
        >
          {startWords(expected, at)}
        </Tile>
      )}
    </dl>
  );
}

export function HoldsTiles({
  holds,
  entitlement,
  expected,
}: {
  readonly holds: Holds;
  readonly entitlement: Explained["entitlement"];
  readonly expected: Explained["expected"];
}) {
  return (
    <dl className={styles.tiles}>
      <Tile name="Share" also={[holds.share === holds.slots ? "it holds as many" : `but holds ${holds.slots} now`, `${holds.min} to ${holds.max} allowed`]}>
        {holds.share}
      </Tile>
      {entitlement && (
        <Tile name={`Entitled: ${entitlement.user}`} also={[`holds ${entitlement.held} with ${entitlement.jobs === 1 ? "this job" : `${entitlement.jobs} jobs`}`]}>
          {entitlement.entitled}
        </Tile>
      )}
      <Tile name="Next size" also={[sentence(holds.next.sentence)]}>
        {holds.next.slots ?? "–"}
      </Tile>
      {expected && <Tile name="Expected end">{expected.end === null ? "–" : dateTime(expected.end)}</Tile>}
    </dl>
  );
}

/** A bar as long as the next slot is worth, and a mark where the price is. */
export function Worth({ holds }: { readonly holds: Holds }) {
  const { worth, price } = worthBar(holds.gain);
  return (
    <div className={styles.worth}>
      <h3>What its next slot is worth</h3>
      {holds.price > 0 && (
        <div className={styles.scale} role="img" aria-label={`Its next slot is worth ${number(holds.gain)} times the price of a slot`}>
          <i className={styles.fill} data-enough={holds.gain >= 1} style={{ width: `${worth}%` }} />
          <i className={styles.price} style={{ left: `${price}%` }} />
          <span className={styles.priceWord} style={{ left: `${price}%` }}>
            price of a slot
          </span>
        </div>
      )}
      <p className={styles.words}>{sentence(holds.worth)}</p>
    </div>
  );
}
