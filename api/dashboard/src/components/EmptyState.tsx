/** What stands where there is nothing yet: a sentence, and the exact command that would change it. */

import type { LucideIcon } from "lucide-react";
import type { ReactNode } from "react";

import { Command } from "./Command";
import styles from "./EmptyState.module.css";

export function EmptyState({
  icon: Icon,
  title,
  command,
  children,
}: {
  readonly icon?: LucideIcon;
  readonly title: string;
  /** The `edt` command to type. */
  readonly command?: string;
  readonly children?: ReactNode;
}) {
  return (
    <div className={styles.empty}>
      {Icon && (
        <span className={styles.icon}>
          <Icon size={22} strokeWidth={1.7} aria-hidden />
        </span>
      )}
      <p className={styles.title}>{title}</p>
      {children !== undefined && <div className={styles.words}>{children}</div>}
      {command !== undefined && <Command text={command} />}
    </div>
  );
}
