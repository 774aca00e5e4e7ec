/** A piece of a page with a heading. */

import { type ReactNode, useId } from "react";

import styles from "./Panel.module.css";

export function Panel({
  title,
  tools,
  flush = false,
  children,
}: {
  readonly title?: ReactNode;
  /** What stands at the right of the heading. */
  readonly tools?: ReactNode;
  /** No padding inside: for tables that go to the edge. */
  readonly flush?: boolean;
  readonly children: ReactNode;
}) {
  const name = useId();
  return (
    <section className={styles.panel} {...(title !== undefined && { "aria-labelledby": name })}>
      {title !== undefined && (
        <header className={styles.head}>
          <h2 id={name}>{title}</h2>
          {tools !== undefined && <div className={styles.tools}>{tools}</div>}
        </header>
      )}
      <div className={styles.body} data-flush={flush}>
        {children}
      </div>
    </section>
  );
}

/** Names and values beside each other; what is null is left out. */
export function Facts({ facts }: { readonly facts: readonly (readonly [string, ReactNode] | null)[] }) {
  return (
    <dl className={styles.facts}>
      {facts.map(
        (fact) =>
          fact && (
            <div key={fact[0]}>
              <dt>{fact[0]}</dt>
              <dd>{fact[1]}</dd>
            </div>
          ),
      )}
    </dl>
  );
}
