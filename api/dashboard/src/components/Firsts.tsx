/** The first items of a long list, with a button for more, and how many there are beyond what is known here. */

import { type ReactNode, useState } from "react";

import { Button } from "./Button";
import { plural } from "./format";
import styles from "./Firsts.module.css";

export function Firsts<T>({
  items,
  first,
  noun,
  all = items.length,
  children,
}: {
  readonly items: readonly T[];
  /** So many are shown at first, and so many more by each press of the button. */
  readonly first: number;
  /** What one of them is called. */
  readonly noun: string;
  /** How many there are; the API may have sent only some of them. */
  readonly all?: number;
  readonly children: (shown: readonly T[]) => ReactNode;
}) {
  const [most, setMost] = useState(first);
  const left = items.length - Math.min(most, items.length);
  const beyond = all - items.length;
  return (
    <>
      {children(items.slice(0, most))}
      {(left > 0 || beyond > 0) && (
        <p className={styles.rest}>
          {left > 0 && (
            <Button size="small" onClick={() => setMost(most + 10 * first)}>
              Show {plural(Math.min(left, 10 * first), `more ${noun}`)}
            </Button>
          )}
          {beyond > 0 && <span className="quiet">{plural(beyond, `further ${noun}`)} not listed here</span>}
        </p>
      )}
    </>
  );
}
