/** The head of a page: its title, a line below, what can be done. Sets the browser tab's title, too. */

import { type ReactNode, useEffect } from "react";

import styles from "./Page.module.css";

export function PageHead({
  title,
  name,
  sub,
  children,
}: {
  readonly title: ReactNode;
  /** The title as plain text, for the browser's tab. */
  readonly name: string;
  readonly sub?: ReactNode;
  /** Buttons at the right. */
  readonly children?: ReactNode;
}) {
  useTabTitle(name);
  return (
    <header className={styles.head}>
      <div className={styles.words}>
        <h1>{title}</h1>
        {sub !== undefined && <div className={styles.sub}>{sub}</div>}
      </div>
      {children !== undefined && <div className={styles.tools}>{children}</div>}
    </header>
  );
}

export function useTabTitle(name: string): void {
  useEffect(() => {
    document.title = `${name} · OpenEDT`;
  }, [name]);
}
