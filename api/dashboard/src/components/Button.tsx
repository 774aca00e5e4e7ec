/** A button, or a link that looks like one. */

import type { LucideIcon } from "lucide-react";
import type { ComponentProps } from "react";
import { Link } from "react-router";

import styles from "./Button.module.css";

interface Looks {
  readonly look?: "plain" | "primary" | "danger" | "ghost";
  readonly size?: "normal" | "small";
  readonly icon?: LucideIcon;
}

export function Button({
  look = "plain",
  size = "normal",
  icon: Icon,
  busy = false,
  children,
  className,
  disabled,
  ...rest
}: ComponentProps<"button"> & Looks & { readonly busy?: boolean }) {
  return (
    <button
      type="button"
      className={`${styles.button ?? ""} ${className ?? ""}`}
      data-look={look}
      data-size={size}
      data-bare={children === undefined || undefined}
      aria-busy={busy || undefined}
      disabled={disabled === true || busy}
      {...rest}
    >
      {Icon && <Icon size={size === "small" ? 14 : 16} strokeWidth={2} aria-hidden />}
      {children}
    </button>
  );
}

export function ButtonLink({
  look = "plain",
  size = "normal",
  icon: Icon,
  children,
  className,
  ...rest
}: ComponentProps<typeof Link> & Looks) {
  return (
    <Link className={`${styles.button ?? ""} ${className ?? ""}`} data-look={look} data-size={size} {...rest}>
      {Icon && <Icon size={size === "small" ? 14 : 16} strokeWidth={2} aria-hidden />}
      {children}
    </Link>
  );
}
