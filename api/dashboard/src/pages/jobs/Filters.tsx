/** What narrows the list of jobs: a text, states, and an owner for whoever sees the jobs of all. */

import { Search, X } from "lucide-react";
import { useEffect, useRef, useState } from "react";

import type { JobFilter } from "../../api/keys";
import { useSeesAll } from "../../api/session";
import { JOB_STATES } from "../../api/types";
import { stateWord } from "../../components/Badge";
import { Button } from "../../components/Button";
import styles from "./Filters.module.css";
import { isEmpty, toggled } from "./filter";

const PAUSE_MS = 220;

export function Filters({
  filter,
  onChange,
}: {
  readonly filter: JobFilter;
  readonly onChange: (filter: JobFilter) => void;
}) {
  const seesAll = useSeesAll();
  return (
    <search className={styles.filters}>
      <Typed
        label="Search"
        placeholder={seesAll ? "Id, name or owner" : "Id or name"}
        value={filter.text}
        onChange={(text) => onChange({ ...filter, text })}
        wide
      />
      {seesAll && (
        <Typed
          label="Owner"
          placeholder="Owner"
          value={filter.owner}
          onChange={(owner) => onChange({ ...filter, owner })}
        />
      )}
      <div role="group" aria-label="States" className={styles.states}>
        {JOB_STATES.map((state) => (
          <button
            key={state}
            type="button"
            className={styles.state}
            aria-pressed={filter.states.includes(state)}
            onClick={() => onChange({ ...filter, states: toggled(filter.states, state) })}
          >
            {stateWord(state)}
          </button>
        ))}
      </div>
      {!isEmpty(filter) && (
        <Button look="ghost" icon={X} onClick={() => onChange({ states: [], owner: "", text: "" })}>
          Clear
        </Button>
      )}
    </search>
  );
}

/** A field whose text takes effect once its typist pauses. */
function Typed({
  label,
  placeholder,
  value,
  onChange,
  wide = false,
}: {
  readonly label: string;
  readonly placeholder: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly wide?: boolean;
}) {
  const [text, setText] = useState(value);
  const reported = useRef(value);
  const report = useRef(onChange);
  useEffect(() => {
    report.current = onChange;
  });
  useEffect(() => {
    if (value !== reported.current) setText(value); // changed from elsewhere: the address, the button that clears
    reported.current = value;
  }, [value]);
  useEffect(() => {
    const next = text.trim();
    if (next === reported.current) return undefined;
    const timer = window.setTimeout(() => {
      reported.current = next;
      report.current(next);
    }, PAUSE_MS);
    return () => window.clearTimeout(timer);
  }, [text]);
  return (
    <span className={styles.typed} data-wide={wide}>
      {wide && <Search size={15} aria-hidden />}
      <input
        type="search"
        aria-label={label}
        placeholder={placeholder}
        value={text}
        spellCheck={false}
        autoCapitalize="none"
        onChange={(event) => setText(event.target.value)}
      />
    </span>
  );
}
