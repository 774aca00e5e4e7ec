/** The shape of what is being fetched. */

import styles from "./Skeleton.module.css";

export function Skeleton({ lines = 3, height = 14 }: { readonly lines?: number; readonly height?: number }) {
  return (
    <div className={styles.skeleton} role="status">
      <span className="visually-hidden">Loading</span>
      {Array.from({ length: lines }, (_, at) => (
        <span key={at} className={styles.line} style={{ height, width: `${92 - ((at * 23) % 41)}%` }} aria-hidden />
      ))}
    </div>
  );
}
