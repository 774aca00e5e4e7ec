/** The corner in which toasts stand. */

import { CircleCheck, TriangleAlert, X } from "lucide-react";
import { useSyncExternalStore } from "react";

import { Button } from "./Button";
import { toast } from "./toasts";
import styles from "./Toasts.module.css";

export function Toasts() {
  const shown = useSyncExternalStore(toast.watch, toast.shown);
  return (
    <section aria-label="Notices" aria-live="polite" className={styles.toasts}>
      {shown.map(({ id, tone, title, detail }) => (
        <div key={id} className={styles.toast} data-tone={tone} {...(tone === "bad" && { role: "alert" })}>
          {tone === "bad" ? <TriangleAlert size={17} aria-hidden /> : <CircleCheck size={17} aria-hidden />}
          <div className={styles.words}>
            <strong>{title}</strong>
            {detail !== "" && <p>{detail}</p>}
          </div>
          <Button look="ghost" size="small" icon={X} aria-label="Dismiss" onClick={() => toast.close(id)} />
        </div>
      ))}
    </section>
  );
}
