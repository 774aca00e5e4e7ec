/** A labelled field of a form, with a hint below and its error. */

import { type ComponentProps, type ReactNode, useId } from "react";

import styles from "./Field.module.css";

interface Around {
  readonly label: string;
  readonly hint?: ReactNode;
  readonly error?: string | undefined;
}

export function TextField({ label, hint, error, className, ...rest }: ComponentProps<"input"> & Around) {
  const id = useId();
  return (
    <Frame id={id} label={label} hint={hint} error={error}>
      <input
        id={id}
        className={`${styles.input ?? ""} ${className ?? ""}`}
        aria-invalid={error !== undefined || undefined}
        aria-describedby={described(id, hint, error)}
        {...rest}
      />
    </Frame>
  );
}

export function TextArea({ label, hint, error, className, ...rest }: ComponentProps<"textarea"> & Around) {
  const id = useId();
  return (
    <Frame id={id} label={label} hint={hint} error={error}>
      <textarea
        id={id}
        className={`${styles.input ?? ""} ${styles.area ?? ""} ${className ?? ""}`}
        aria-invalid={error !== undefined || undefined}
        aria-describedby={described(id, hint, error)}
        {...rest}
      />
    </Frame>
  );
}

export function SelectField({ label, hint, error, className, children, ...rest }: ComponentProps<"select"> & Around) {
  const id = useId();
  return (
    <Frame id={id} label={label} hint={hint} error={error}>
      <select
        id={id}
        className={`${styles.input ?? ""} ${className ?? ""}`}
        aria-invalid={error !== undefined || undefined}
        aria-describedby={described(id, hint, error)}
        {...rest}
      >
        {children}
      </select>
    </Frame>
  );
}

/** The frame alone, for controls of other kinds. */
export function Frame({ id, label, hint, error, children }: Around & { readonly id: string; readonly children: ReactNode }) {
  return (
    <div className={styles.field}>
      <label htmlFor={id} className={styles.label}>
        {label}
      </label>
      {children}
      {error !== undefined && (
        <p id={`${id}-error`} className={styles.error}>
          {error}
        </p>
      )}
      {hint !== undefined && (
        <p id={`${id}-hint`} className={styles.hint}>
          {hint}
        </p>
      )}
    </div>
  );
}

function described(id: string, hint: ReactNode, error: string | undefined): string | undefined {
  const parts = [error !== undefined && `${id}-error`, hint !== undefined && `${id}-hint`].filter(Boolean);
  return parts.length > 0 ? parts.join(" ") : undefined;
}
