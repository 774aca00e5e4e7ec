/** Whether what is on the screen is fresh: live, reconnecting, or stale since when. */

import { CloudOff, LoaderCircle, Radio } from "lucide-react";

import { useConnection } from "../api/stream/live";
import { Hint } from "../components/Hint";
import { clock } from "../components/format";
import styles from "./ConnectionBadge.module.css";

export function ConnectionBadge() {
  const { phase, receivedAt, since } = useConnection();
  const shown = {
    connecting: { icon: LoaderCircle, word: "reconnecting", hint: "Connecting to the API." },
    live: { icon: Radio, word: "live", hint: "Changes are shown as they happen." },
    reconnecting: {
      icon: LoaderCircle,
      word: "reconnecting",
      hint: "The line to the API broke. The page fetches what it shows every 5 seconds meanwhile.",
    },
    stale: {
      icon: CloudOff,
      word: `stale since ${clock((receivedAt ?? since) / 1000)}`,
      hint: "Nothing came from the API since then. What is shown may be old.",
    },
  }[phase];
  const Icon = shown.icon;
  return (
    <Hint text={shown.hint}>
      <span role="status" aria-live="polite" className={styles.badge} data-phase={phase}>
        <Icon size={14} aria-hidden />
        <span className={styles.word}>{shown.word}</span>
      </span>
    </Hint>
  );
}
