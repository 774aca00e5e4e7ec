/** A few words beside a thing, on hover and on focus. What must be known stands on the page itself. */

import { Tooltip } from "radix-ui";
import type { ReactElement, ReactNode } from "react";

import styles from "./Hint.module.css";

export function Hint({ text, children }: { readonly text: ReactNode; readonly children: ReactElement }) {
  return (
    <Tooltip.Root>
      <Tooltip.Trigger asChild>{children}</Tooltip.Trigger>
      <Tooltip.Portal>
        <Tooltip.Content className={styles.hint} sideOffset={6} collisionPadding={8}>
          {text}
        </Tooltip.Content>
      </Tooltip.Portal>
    </Tooltip.Root>
  );
}
