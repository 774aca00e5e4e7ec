/** The timeline's controls: how much time, where, and whose. */

import { Radio, Search, UserRound, X, ZoomIn, ZoomOut } from "lucide-react";
import { useId } from "react";

import type { XRange } from "../../charts/props";
import { PRESETS, spanOf, type View } from "../../charts/range";
import { Button } from "../../components/Button";
import styles from "./Timeline.module.css";

export interface ToolbarProps {
  readonly view: View;
  readonly range: XRange;
  readonly onView: (view: View) => void;
  readonly onZoom: (factor: number) => void;
  readonly nodes: readonly string[];
  readonly node: string;
  readonly onNode: (node: string) => void;
  readonly text: string;
  readonly onText: (text: string) => void;
  readonly mine: boolean;
  readonly onMine: (mine: boolean) => void;
}

export function Toolbar(props: ToolbarProps) {
  const { view, onView } = props;
  const follows = view.kind !== "fixed";
  return (
    <div className={styles.toolbar} role="group" aria-label="What is shown">
      <div className={styles.group} role="group" aria-label="Range">
        {PRESETS.map(({ word, label, seconds }) => (
          <Choice key={word} on={view.kind === "follow" && view.span === seconds} onClick={() => onView({ kind: "follow", span: seconds })}>
            {label}
          </Choice>
        ))}
        <Choice on={view.kind === "all"} onClick={() => onView({ kind: "all" })}>All</Choice>
      </div>
      <div className={styles.group} role="group" aria-label="Zoom">
        <Button look="ghost" size="small" icon={ZoomIn} aria-label="Zoom in" title="Zoom in (+)" onClick={() => props.onZoom(0.6)} />
        <Button look="ghost" size="small" icon={ZoomOut} aria-label="Zoom out" title="Zoom out (-)" onClick={() => props.onZoom(1 / 0.6)} />
      </div>
      <button
        type="button" className={styles.switch} aria-pressed={follows} title="Keep now in sight (Home)"
        onClick={() => onView(follows ? { kind: "fixed", ...props.range } : { kind: "follow", span: spanOf(props.range) })}
      >
        <Radio size={14} aria-hidden />
        Follow now
      </button>
      <span className={styles.stretch} />
      <Filter text={props.text} onText={props.onText} />
      <select className={styles.select} aria-label="Node" value={props.node} onChange={(event) => props.onNode(event.target.value)}>
        <option value="">All nodes</option>
        {props.nodes.map((node) => <option key={node} value={node}>{node}</option>)}
        {props.node && !props.nodes.includes(props.node) && <option value={props.node}>{props.node}</option>}
      </select>
      <button type="button" className={styles.switch} aria-pressed={props.mine} onClick={() => props.onMine(!props.mine)}>
        <UserRound size={14} aria-hidden />
        Highlight mine
      </button>
    </div>
  );
}

function Choice({ on, onClick, children }: { readonly on: boolean; readonly onClick: () => void; readonly children: React.ReactNode }) {
  return <button type="button" className={styles.choice} aria-pressed={on} onClick={onClick}>{children}</button>;
}

function Filter({ text, onText }: { readonly text: string; readonly onText: (text: string) => void }) {
  const id = useId();
  return (
    <div className={styles.filter}>
      <Search size={14} aria-hidden />
      <label htmlFor={id} className="visually-hidden">Filter by job, name or owner</label>
      <input id={id} type="text" value={text} placeholder="Job, name or owner" spellCheck={false} autoComplete="off" onChange={(event) => onText(event.target.value)} />
      {text !== "" && (
        <button type="button" aria-label="Clear the filter" onClick={() => onText("")}>
          <X size={13} aria-hidden />
        </button>
      )}
    </div>
  );
}
