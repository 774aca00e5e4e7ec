/** One of a few, side by side. */

import type { LucideIcon } from "lucide-react";
import { useId } from "react";

import styles from "./Segments.module.css";

export function Segments({
  label,
  value,
  onChange,
  choices,
}: {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly choices: readonly { readonly value: string; readonly label: string; readonly icon?: LucideIcon }[];
}) {
  const name = useId();
  return (
    <div role="radiogroup" aria-label={label} className={styles.segments}>
      {choices.map(({ value: each, label: word, icon: Icon }) => (
        <label key={each} className={styles.segment}>
          <input type="radio" className="visually-hidden" name={name} checked={each === value} onChange={() => onChange(each)} />
          {Icon && <Icon size={13} aria-hidden />}
          {word}
        </label>
      ))}
    </div>
  );
}
