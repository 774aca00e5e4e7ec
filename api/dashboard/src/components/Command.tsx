/** A command to copy, on one line or several. */

import { CopyButton } from "./CopyButton";
import styles from "./Command.module.css";

export function Command({ text, label = "Copy the command" }: { readonly text: string; readonly label?: string }) {
  return (
    <div className={styles.command}>
      <pre>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} label={label} />
    </div>
  );
}
