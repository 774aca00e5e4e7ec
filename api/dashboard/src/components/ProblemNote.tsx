/** A problem where its answer would have stood. */

import { RotateCw, TriangleAlert } from "lucide-react";

import { asProblem } from "../api/problem";
import { Button } from "./Button";
import styles from "./ProblemNote.module.css";

export function ProblemNote({ error, onRetry }: { readonly error: unknown; readonly onRetry?: () => void }) {
  const problem = asProblem(error);
  return (
    <div role="alert" className={styles.note}>
      <TriangleAlert size={17} aria-hidden />
      <div className={styles.words}>
        <strong>{problem.title}</strong>
        {problem.detail !== "" && <p>{problem.detail}</p>}
      </div>
      {onRetry && (
        <Button size="small" icon={RotateCw} onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}
