/** What the signs in the chart mean. The signs are those that paint.ts draws. */

import type { ReactNode } from "react";

import styles from "./Timeline.module.css";

export function MarksKey() {
  return (
    <ul className={styles.key} aria-label="Marks in the chart">
      <Sign words="slots were added to a job">
        <path d="M3 11h10L8 3.5z" fill="var(--text)" />
      </Sign>
      <Sign words="slots were taken from it">
        <path d="M3 5h10l-5 7.5z" fill="var(--text)" />
      </Sign>
      <Sign words="an engine, a node or an attempt failed">
        <circle cx="8" cy="8" r="6" fill="var(--bad-fill)" />
        <path d="M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8" stroke="#fff" strokeWidth="1.6" />
      </Sign>
      <Sign words="given, its process is starting">
        <rect x="1" y="3" width="14" height="10" fill="var(--calm-fill)" />
        <rect x="2" y="4" width="6" height="8" fill="var(--surface)" opacity="0.5" />
      </Sign>
      <Sign words="a gang: it starts whole and keeps its slots">
        <rect x="1" y="3" width="14" height="10" fill="var(--calm-fill)" />
        <path d="M1 5.2h14M1 10.8h14" stroke="var(--surface)" strokeWidth="1.4" />
      </Sign>
      <Hatch words="node lost" colour="--bad-fill" />
      <Hatch words="node draining" colour="--warn-fill" />
      <Hatch words="node cordoned" colour="--calm-fill" />
    </ul>
  );
}

function Hatch({ words, colour }: { readonly words: string; readonly colour: string }) {
  return (
    <Sign words={words}>
      <path d="M1 15L15 1M-3 11L11 -3M5 19L19 5" stroke={`var(${colour})`} strokeWidth="1.5" opacity="0.7" />
    </Sign>
  );
}

function Sign({ words, children }: { readonly words: string; readonly children: ReactNode }) {
  return (
    <li>
      <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden>
        {children}
      </svg>
      {words}
    </li>
  );
}
