/** The moment before anything is known: empty, and after a while a word. Room: dashboard, app. */

import styles from "./Waiting.module.css";

export function Waiting() {
  return (
    <div className={styles.waiting} role="status">
      Loading …
    </div>
  );
}
