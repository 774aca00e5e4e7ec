/** Handing in a job. Next: form.ts (what is sent), code/ (what is packed), commands.ts. */

import { useQuery } from "@tanstack/react-query";
import { Rocket, X } from "lucide-react";
import { type FormEvent, useEffect, useRef, useState } from "react";
import { Link, useNavigate } from "react-router";

import { frameworksQuery } from "../../api/frameworks";
import { nodesQuery } from "../../api/nodes";
import { asProblem, type Problem } from "../../api/problem";
import { useMayChange } from "../../api/session";
import type { Framework } from "../../api/types";
import { Button } from "../../components/Button";
import { SelectField, TextField } from "../../components/Field";
import { percent, plural, sentence } from "../../components/format";
import { PageHead } from "../../components/Page";
import { Panel } from "../../components/Panel";
import { ProblemNote } from "../../components/ProblemNote";
import { toast } from "../../components/toasts";
import { ForbiddenPage } from "../problem/ForbiddenPage";
import { CodeDrop } from "./CodeDrop";
import { type Code, codeOf } from "./code/code";
import { Commands } from "./Commands";
import { exampleFile } from "./examples";
import { commandOf, EMPTY, type Field, fieldOf, type Form, mistakes, type Wrong } from "./form";
import { type Progress, send } from "./send";
import styles from "./Submit.module.css";
import { Variables } from "./Variables";
import { commandText } from "./words";

export function SubmitPage() {
  return useMayChange() ? <SubmitForm /> : <ForbiddenPage />;
}

function SubmitForm() {
  const [form, setForm] = useState<Form>(EMPTY);
  const [code, setCode] = useState<Code | null>(null);
  const [tried, setTried] = useState(false);
  const [refused, setRefused] = useState<Wrong>({});
  const [problem, setProblem] = useState<Problem | null>(null);
  const [progress, setProgress] = useState<Progress | null>(null);
  const sending = useRef<AbortController | null>(null);
  const key = useRef<string | null>(null);
  const exampleOf = useRef<string | null>(null); // the framework whose example the code is, or is about to be
  const frame = useRef<HTMLFormElement>(null);
  const navigate = useNavigate();
  const frameworks = useQuery(frameworksQuery);

  const changed = (field: Field): void => {
    key.current = null; // another submission than the one that may have been taken
    setRefused((before) => ({ ...before, [field]: undefined }));
    setProblem(null);
  };
  const set = <Name extends keyof Form>(name: Name, value: Form[Name]): void => {
    setForm((before) => ({ ...before, [name]: value }));
    changed(name);
  };
  const take = (next: Code | null): void => {
    setCode(next);
    exampleOf.current = null;
    setForm((before) => ({ ...before, main: next ? (next.scripts.includes(before.main) ? before.main : (next.scripts[0] ?? "")) : "" }));
    changed("code");
    changed("main");
  };
  const tryExample = async (framework: string): Promise<void> => {
    const file = exampleFile(framework);
    if (!file) return;
    exampleOf.current = framework;
    const next = await codeOf([{ path: file.name, file }]);
    if (exampleOf.current !== framework) return; // something else was chosen meanwhile
    take(next);
    exampleOf.current = framework;
    setForm((before) => ({ ...before, name: before.name || "digits", own: before.own || "--epochs 60", mostWorkers: "4" }));
  };
  const chooseFramework = (framework: string): void => {
    set("framework", framework);
    const entry = frameworks.data?.find((each) => each.name === framework);
    setForm((before) => ({
      ...before,
      elastic: entry?.elastic ?? true,
      mostWorkers: entry && entry.max_workers > 0 && Number(before.mostWorkers) > entry.max_workers ? String(entry.max_workers) : before.mostWorkers,
    }));
    if (exampleOf.current !== null) void tryExample(framework);
  };

  const local = mistakes(form, code);
  const wrong = (field: Field): string | undefined => refused[field] ?? (tried ? local[field] : undefined);

  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setTried(true);
    setProblem(null);
    if (Object.keys(local).length > 0) {
      toFirstMistake();
      return;
    }
    const controller = new AbortController();
    sending.current = controller;
    try {
      const id = await send(form, code, (key.current ??= freshKey()), setProgress, controller.signal);
      toast.say(`${id} is submitted`);
      await navigate(`/jobs/${id}`);
    } catch (error) {
      if (controller.signal.aborted) return;
      const refusal = asProblem(error);
      const sentence = refusal.detail.replace(/^Error \d+: /, "");
      const field = fieldOf(sentence);
      if (field && refusal.status < 500) {
        setRefused({ [field]: sentence.charAt(0).toUpperCase() + sentence.slice(1) });
        toFirstMistake();
      } else {
        setProblem(refusal);
      }
    } finally {
      sending.current = null;
      setProgress(null);
    }
  };
  const toFirstMistake = (): void => {
    window.setTimeout(() => frame.current?.querySelector<HTMLElement>("[aria-invalid='true']")?.focus());
  };
  useEffect(() => () => sending.current?.abort(), []);

  const entry = frameworks.data?.find((each) => each.name === form.framework);
  const commanded = commandOf(form).length > 0;
  const typed = (name: "command" | "mostWorkers" | "gpusPerWorker" | "maxRestarts" | "own" | "name" | "image" | "dataFolder") => ({
    value: form[name], error: wrong(name), autoComplete: "off", spellCheck: false,
    onChange: (event: { target: { value: string } }) => set(name, event.target.value),
  });

  return (
    <>
      <PageHead title="Submit" name="Submit" sub={form.elastic ? "An elastic job starts with one slot and grows to what is free" : "A gang starts all its processes at once, and keeps its slots"} />
      <form ref={frame} className={styles.page} onSubmit={(event) => void submit(event)} noValidate>
        <div className={styles.fields}>
          <Panel title="What to run">
            <div className={styles.rows}>
              <CodeDrop code={code} error={wrong("code")} onCode={take} onExample={exampleFile(form.framework) ? () => void tryExample(form.framework) : null} />
              <div className={styles.two}>
                <MainScript code={code} value={form.main} error={wrong("main")} onChange={(main) => set("main", main)} />
                <SelectField label="Framework" value={form.framework} error={wrong("framework")} onChange={(event) => chooseFramework(event.target.value)}>
                  <Choices frameworks={frameworks.data} chosen={form.framework} />
                </SelectField>
              </div>
              <p className={styles.about}>
                {entry?.description && `${sentence(entry.description)} `}
                <Link to="/frameworks">All frameworks</Link>
              </p>
              {!form.elastic && (
                <TextField
                  label="Command" placeholder={entry && entry.command.length > 0 ? commandText(entry.command) : "bash run.sh"} className="mono"
                  hint="Runs in place of the framework’s own, once for each worker, in the folder of the code. Needs no code." {...typed("command")}
                />
              )}
              {!commanded && (
                <TextField label="Arguments" placeholder="--epochs 20 --learning-rate 0.001" hint="The script’s own, as in a shell." className="mono" {...typed("own")} />
              )}
            </div>
          </Panel>
          <Panel title="How large">
            <div className={styles.three}>
              <TextField label={form.elastic ? "Most workers" : "Workers"} inputMode="numeric" hint={workersHint(form, entry)} {...typed("mostWorkers")} />
              <TextField label="GPUs per worker" inputMode="numeric" hint={form.elastic ? "Nearly always 1." : "All on one node."} {...typed("gpusPerWorker")} />
              <TextField label="Most restarts" inputMode="numeric" hint={form.elastic ? "After an exception of the script." : "After a process has failed."} {...typed("maxRestarts")} />
            </div>
          </Panel>
          <Panel title="More">
            <div className={styles.rows}>
              <div className={styles.two}>
                <TextField label="Name" placeholder="For people" {...typed("name")} />
                <TextField label="Data folder" placeholder="mnist" hint="Below the platform’s data folder." {...typed("dataFolder")} />
              </div>
              <TextField label="Image" placeholder="The platform’s own" hint="On nodes that use containers." {...typed("image")} />
              <Variables variables={form.variables} error={wrong("variables")} onChange={(variables) => set("variables", variables)} />
            </div>
          </Panel>
        </div>
        <div className={styles.side}>
          <Commands form={form} code={code} />
          <div className={styles.go}>
            <Outlook form={form} />
            {problem && <ProblemNote error={problem} />}
            {progress ? <Sending progress={progress} onCancel={() => sending.current?.abort()} /> : (
              <Button type="submit" look="primary" icon={Rocket} className={styles.submit}>Submit job</Button>
            )}
          </div>
        </div>
      </form>
    </>
  );
}

/** The frameworks by kind: a gang is not what one wants for a script that uses FabricModel. */
function Choices({ frameworks, chosen }: { readonly frameworks: readonly Framework[] | undefined; readonly chosen: string }) {
  if (!frameworks) return <option value={chosen}>{chosen}</option>;
  const groups = [
    ["Elastic: grow and shrink", frameworks.filter((each) => each.elastic)],
    ["Gangs: start whole, keep their slots", frameworks.filter((each) => !each.elastic)],
  ] as const;
  return groups.map(([label, entries]) => (
    <optgroup key={label} label={label}>
      {entries.map(({ name }) => <option key={name} value={name}>{name}</option>)}
    </optgroup>
  ));
}

function workersHint(form: Form, entry: Framework | undefined): string {
  if (form.elastic) return "It grows and shrinks up to this.";
  return entry && entry.max_workers > 0 ? `At most ${entry.max_workers} with ${entry.name}.` : "They all start together.";
}

function MainScript(
  { code, value, error, onChange }: { readonly code: Code | null; readonly value: string; readonly error: string | undefined; readonly onChange: (main: string) => void },
) {
  if (code && code.whole && code.scripts.length > 0) {
    return (
      <SelectField label="Main script" value={value} error={error} className="mono" onChange={(event) => onChange(event.target.value)}>
        {code.scripts.map((path) => <option key={path} value={path}>{path}</option>)}
      </SelectField>
    );
  }
  return (
    <TextField
      label="Main script" value={value} error={error} placeholder={code ? "main.py" : "Chosen from the files"} disabled={code === null} className="mono"
      hint={code ? "Its path inside the archive." : undefined} spellCheck={false} autoComplete="off" onChange={(event) => onChange(event.target.value)}
    />
  );
}

/** What will come of it, as far as one can tell. */
function Outlook({ form }: { readonly form: Form }) {
  const { data } = useQuery(nodesQuery);
  const most = Number(form.mostWorkers) * Number(form.gpusPerWorker);
  const usable = (data ?? []).filter((node) => node.health === "up").flatMap((node) => node.slots);
  const free = usable.filter((slot) => !slot.busy).length;
  const now = free === 0 ? "No slot is free now: it waits, or others make room." : `${plural(free, "slot")} of ${usable.length} ${free === 1 ? "is" : "are"} free now.`;
  return (
    <p className={styles.outlook}>
      {Number.isFinite(most) && most >= 1 ? (form.elastic ? `It uses up to ${plural(most, "slot")}. ` : `It needs ${plural(most, "slot")} at once. `) : ""}
      {data ? (form.elastic || free === 0 || most <= free ? now : `${now} It waits until elastic jobs make room or others end.`) : ""}
    </p>
  );
}

const WORDS = { packing: "Packing", sending: "Sending", answer: "Unpacking and checking on the platform" } as const;

function Sending({ progress, onCancel }: { readonly progress: Progress; readonly onCancel: () => void }) {
  const share = progress.phase === "sending" ? progress.share : progress.phase === "answer" ? 1 : 0;
  return (
    <div className={styles.sending}>
      <div className={styles.track} role="progressbar" aria-label="Upload" aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)}>
        <span style={{ width: `${share * 100}%` }} />
      </div>
      <span role="status">{WORDS[progress.phase]}{progress.phase === "sending" ? ` ${percent(share)}` : ""}</span>
      <Button size="small" icon={X} onClick={onCancel}>Cancel</Button>
    </div>
  );
}

/** Random letters; `crypto.randomUUID` is missing on pages that did not come by https. */
function freshKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
