/** A menu under a button: items, one choice of several, words. */

import { Check, type LucideIcon } from "lucide-react";
import { DropdownMenu } from "radix-ui";
import type { ReactElement, ReactNode } from "react";

import styles from "./Menu.module.css";

export function Menu({
  trigger,
  children,
  align = "end",
}: {
  readonly trigger: ReactElement;
  readonly children: ReactNode;
  readonly align?: "start" | "end";
}) {
  return (
    <DropdownMenu.Root modal={false}>
      <DropdownMenu.Trigger asChild>{trigger}</DropdownMenu.Trigger>
      <DropdownMenu.Portal>
        <DropdownMenu.Content className={styles.menu} sideOffset={6} align={align} collisionPadding={8}>
          {children}
        </DropdownMenu.Content>
      </DropdownMenu.Portal>
    </DropdownMenu.Root>
  );
}

export function MenuItem({
  icon: Icon,
  danger = false,
  disabled = false,
  onSelect,
  children,
}: {
  readonly icon?: LucideIcon;
  readonly danger?: boolean;
  readonly disabled?: boolean;
  readonly onSelect: () => void;
  readonly children: ReactNode;
}) {
  return (
    <DropdownMenu.Item className={styles.item} data-danger={danger} disabled={disabled} onSelect={onSelect}>
      {Icon && <Icon size={15} aria-hidden />}
      {children}
    </DropdownMenu.Item>
  );
}

export function MenuChoice({
  value,
  onChange,
  choices,
}: {
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly choices: readonly { readonly value: string; readonly label: string; readonly icon?: LucideIcon }[];
}) {
  return (
    <DropdownMenu.RadioGroup value={value} onValueChange={onChange}>
      {choices.map(({ value: each, label, icon: Icon }) => (
        <DropdownMenu.RadioItem key={each} value={each} className={styles.item}>
          {Icon && <Icon size={15} aria-hidden />}
          {label}
          <DropdownMenu.ItemIndicator className={styles.check}>
            <Check size={15} aria-hidden />
          </DropdownMenu.ItemIndicator>
        </DropdownMenu.RadioItem>
      ))}
    </DropdownMenu.RadioGroup>
  );
}

/** Several of several: stays open while one ticks. */
export function MenuTick({
  checked,
  onChange,
  children,
}: {
  readonly checked: boolean;
  readonly onChange: (checked: boolean) => void;
  readonly children: ReactNode;
}) {
  return (
    <DropdownMenu.CheckboxItem
      className={styles.item}
      checked={checked}
      onCheckedChange={onChange}
      onSelect={(event) => event.preventDefault()}
    >
      <span className={styles.box} data-checked={checked}>
        <DropdownMenu.ItemIndicator>
          <Check size={12} strokeWidth={3} aria-hidden />
        </DropdownMenu.ItemIndicator>
      </span>
      {children}
    </DropdownMenu.CheckboxItem>
  );
}

export function MenuText({ children }: { readonly children: ReactNode }) {
  return <DropdownMenu.Label className={styles.text}>{children}</DropdownMenu.Label>;
}

export function MenuLine() {
  return <DropdownMenu.Separator className={styles.line} />;
}
