/** The sign on the login page: a job's workers over time, which is what all this is about. */

import styles from "./LoginPage.module.css";

export function Steps() {
  return (
    <svg viewBox="0 0 360 84" className={styles.steps} aria-hidden focusable="false">
      <path className={styles.fillB} d="M0 84V66H84V48H148V66H214V30H284V48H360V84Z" />
      <path className={styles.lineB} d="M0 66H84V48H148V66H214V30H284V48H360" />
      <path className={styles.fillA} d="M36 84V48H104V12H176V48H236V66H312V30H360V84Z" />
      <path className={styles.lineA} d="M36 48H104V12H176V48H236V66H312V30H360" />
    </svg>
  );
}
