/** A whole page for what went wrong. */

import { Home, RotateCw, TriangleAlert, type LucideIcon } from "lucide-react";
import type { ReactNode } from "react";

import type { Problem } from "../../api/problem";
import { Button, ButtonLink } from "../../components/Button";
import { useTabTitle } from "../../components/Page";
import styles from "./ProblemPage.module.css";

export function ProblemPage({
  problem,
  onRetry,
  alone = false,
}: {
  readonly problem: Problem;
  readonly onRetry?: () => void;
  /** Nothing else is on the screen. */
  readonly alone?: boolean;
}) {
  return (
    <Message title={problem.status > 0 ? `${problem.status}: ${problem.title}` : problem.title} icon={TriangleAlert} alone={alone}>
      {problem.detail !== "" && <p>{problem.detail}</p>}
      {onRetry && (
        <Button icon={RotateCw} onClick={onRetry}>
          Try again
        </Button>
      )}
    </Message>
  );
}

export function Message({
  title,
  icon: Icon,
  alone = false,
  children,
}: {
  readonly title: string;
  readonly icon: LucideIcon;
  readonly alone?: boolean;
  readonly children: ReactNode;
}) {
  useTabTitle(title);
  return (
    <div className={styles.page} data-alone={alone} role="alert">
      <Icon size={30} strokeWidth={1.6} aria-hidden />
      <h1>{title}</h1>
      {children}
    </div>
  );
}

export function HomeLink() {
  return (
    <ButtonLink to="/jobs" icon={Home}>
      To the jobs
    </ButtonLink>
  );
}
