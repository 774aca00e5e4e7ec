/**
 * A dialog over the page, and the question before something that cannot be taken back.
 *
 * The browser's own <dialog>: it keeps the focus inside, closes on Escape and gives the focus back.
 */

import { X } from "lucide-react";
import { type ReactNode, useEffect, useId, useLayoutEffect, useRef } from "react";

import { Button } from "./Button";
import styles from "./Dialog.module.css";

export function Dialog({
  title,
  onClose,
  children,
  side = false,
}: {
  readonly title: ReactNode;
  readonly onClose: () => void;
  readonly children: ReactNode;
  /** A panel at the right edge: for details of what stays in sight. */
  readonly side?: boolean;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const name = useId();
  // In the layout phase, since only a dialog that is still in the page gives the focus back as it closes.
  useLayoutEffect(() => {
    const shown = dialog.current;
    if (shown && !shown.open) shown.showModal();
    return () => shown?.close();
  }, []);
  return (
    // A click on the backdrop is a click on the dialog itself; the keyboard has Escape.
    <dialog
      ref={dialog}
      className={styles.dialog}
      data-side={side}
      aria-labelledby={name}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === dialog.current) onClose();
      }}
    >
      <div className={styles.inside}>
        <header className={styles.head}>
          <h2 id={name}>{title}</h2>
          <Button look="ghost" size="small" icon={X} aria-label="Close" onClick={onClose} />
        </header>
        <div className={styles.body}>{children}</div>
      </div>
    </dialog>
  );
}

export function Confirm({
  title,
  children,
  action,
  danger = true,
  busy = false,
  onConfirm,
  onClose,
}: {
  readonly title: ReactNode;
  /** What will happen, in a sentence or two. */
  readonly children: ReactNode;
  /** The word on the button: the same as on the one that asked. */
  readonly action: string;
  readonly danger?: boolean;
  readonly busy?: boolean;
  readonly onConfirm: () => void;
  readonly onClose: () => void;
}) {
  const cancel = useRef<HTMLButtonElement>(null);
  useEffect(() => cancel.current?.focus(), []); // the harmless answer, after the dialog has put the focus on its first button
  return (
    <Dialog title={title} onClose={onClose}>
      <div className={styles.text}>{children}</div>
      <footer className={styles.foot}>
        <Button ref={cancel} onClick={onClose}>
          Cancel
        </Button>
        <Button look={danger ? "danger" : "primary"} onClick={onConfirm} busy={busy}>
          {action}
        </Button>
      </footer>
    </Dialog>
  );
}
