/** Environment variables of a job, their values masked. */

import { Eye, EyeOff, Plus, Trash2 } from "lucide-react";
import { type ClipboardEvent, useState } from "react";

import { Button } from "../../components/Button";
import field from "../../components/Field.module.css";
import type { Variable } from "./form";
import styles from "./Submit.module.css";

export interface VariablesProps {
  readonly variables: readonly Variable[];
  readonly error: string | undefined;
  readonly onChange: (variables: readonly Variable[]) => void;
}

export function Variables({ variables, error, onChange }: VariablesProps) {
  const [shown, setShown] = useState(false);
  const set = (at: number, part: Partial<Variable>): void =>
    onChange(variables.map((each, number) => (number === at ? { ...each, ...part } : each)));
  const paste = (at: number, event: ClipboardEvent): void => {
    const found = assignments(event.clipboardData.getData("text"));
    if (found.length === 0) return;
    event.preventDefault();
    onChange([...variables.slice(0, at), ...found, ...variables.slice(at + 1)]);
  };
  return (
    <fieldset className={styles.variables}>
      <legend>Environment variables</legend>
      {variables.map((variable, at) => (
        <div key={at} className={styles.variable}>
          <input
            className={`${field.input ?? ""} mono`} aria-label={`Variable ${at + 1}`} placeholder="NAME" value={variable.name}
            spellCheck={false} autoCapitalize="none" autoComplete="off" aria-invalid={error !== undefined || undefined}
            onChange={(event) => set(at, { name: event.target.value })} onPaste={(event) => paste(at, event)}
          />
          <input
            className={`${field.input ?? ""} mono`} aria-label={`Value ${at + 1}`} placeholder="value" value={variable.value}
            type={shown ? "text" : "password"} spellCheck={false} autoComplete="new-password"
            onChange={(event) => set(at, { value: event.target.value })}
          />
          <Button
            look="ghost" icon={Trash2} aria-label={`Remove ${variable.name || `row ${at + 1}`}`} title="Remove"
            onClick={() => onChange(variables.filter((_, number) => number !== at))}
          />
        </div>
      ))}
      {error !== undefined && <p className={field.error}>{error}</p>}
      <div className={styles.variableButtons}>
        <Button size="small" icon={Plus} onClick={() => onChange([...variables, { name: "", value: "" }])}>Add a variable</Button>
        {variables.length > 0 && (
          <Button size="small" look="ghost" icon={shown ? EyeOff : Eye} aria-pressed={shown} onClick={() => setShown(!shown)}>
            {shown ? "Hide values" : "Show values"}
          </Button>
        )}
      </div>
      <p className={field.hint}>Values are masked wherever the job is shown. Lines of NAME=value can be pasted.</p>
    </fieldset>
  );
}

/** `NAME=value` lines, as in a .env file; none where a line is anything else. */
function assignments(text: string): Variable[] {
  const lines = text.split("\n").map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"));
  const found = lines.map((line) => /^(?:export\s+)?([A-Za-z_]\w*)=(.*)$/.exec(line));
  if (found.some((match) => match === null)) return [];
  return found.map((match) => ({ name: match?.[1] ?? "", value: (match?.[2] ?? "").replace(/^(["'])(.*)\1$/, "$2") }));
}
