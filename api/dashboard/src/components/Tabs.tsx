/** Tabs of a page or a panel. Which one is open is the caller's: mostly a part of the path. */

import { Tabs as Radix } from "radix-ui";
import type { ReactNode } from "react";

import styles from "./Tabs.module.css";

export interface Tab {
  readonly value: string;
  readonly label: string;
  /** A small number or sign beside the label. */
  readonly note?: ReactNode;
}

export function Tabs({
  label,
  tabs,
  value,
  onChange,
  children,
  small = false,
}: {
  readonly label: string;
  readonly tabs: readonly Tab[];
  readonly value: string;
  readonly onChange: (value: string) => void;
  /** The open tab's content alone. */
  readonly children: ReactNode;
  readonly small?: boolean;
}) {
  return (
    <Radix.Root value={value} onValueChange={onChange} activationMode="automatic">
      <Radix.List aria-label={label} className={styles.list} data-small={small}>
        {tabs.map((tab) => (
          <Radix.Trigger key={tab.value} value={tab.value} className={styles.tab}>
            {tab.label}
            {tab.note !== undefined && <span className={styles.note}>{tab.note}</span>}
          </Radix.Trigger>
        ))}
      </Radix.List>
      {tabs.map((tab) => (
        <Radix.Content key={tab.value} value={tab.value} className={styles.content} tabIndex={-1}>
          {tab.value === value && children}
        </Radix.Content>
      ))}
    </Radix.Root>
  );
}
