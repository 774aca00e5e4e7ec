/** The moment before anything is known: empty, and after a while a word. */

import styles from "./Waiting.module.css";

export function Waiting() {
  return (
    <div className={styles.waiting} role="status">
      Loading …
    </div>
  );
}
