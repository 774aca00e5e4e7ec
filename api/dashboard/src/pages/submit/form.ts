/** What the Submit form holds, what is wrong with it, and the words that are sent. Pure. */

import type { Code } from "./code/code";
import { joinWords, splitWords, UnclosedQuote } from "./words";

export interface Variable {
  readonly name: string;
  readonly value: string;
}

export interface Form {
  readonly framework: string;
  /** Whether jobs of the framework grow and shrink; the others are gangs. */
  readonly elastic: boolean;
  /** Of a gang: the command that runs in place of the framework's, as one types it in a shell; "": the framework's. */
  readonly command: string;
  readonly main: string;
  readonly mostWorkers: string;
  readonly gpusPerWorker: string;
  /** The script's own, as one types them in a shell. */
  readonly own: string;
  readonly variables: readonly Variable[];
  readonly name: string;
  readonly image: string;
  readonly maxRestarts: string;
  readonly dataFolder: string;
}

export const EMPTY: Form = {
  framework: "edtPyTorch", elastic: true, command: "", main: "", mostWorkers: "4", gpusPerWorker: "1", own: "", variables: [], name: "", image: "",
  maxRestarts: "0", dataFolder: "",
};

/** The framework that `edt submit` takes where none is named. */
export const USUAL_FRAMEWORK = "edtPyTorch";

export type Field = keyof Form | "code";
export type Wrong = Partial<Record<Field, string>>;

const MOST_WORKERS = 10_000;
const MOST_RESTARTS = 1_000;
/** Variables by which the platform knows its own processes. */
const RESERVED = new Set(["EDT_TAG", "EDT_NODE", "EDT_LIFE"]);

/** What the API would refuse, found before it is sent. */
export function mistakes(form: Form, code: Code | null): Wrong {
  const wrong: Wrong = {};
  const command = commandOf(form);
  if (typeof command === "string") wrong.command = `${command[0]?.toUpperCase()}${command.slice(1)}.`;
  const commanded = command.length > 0;
  if (!code && !commanded) wrong.code = "Drop a script, a folder or an archive, or try the example.";
  if (code && !commanded && form.main.trim() === "") wrong.main = "Name the script that is to be run.";
  else if (code && !commanded && code.whole && code.kind !== "script" && !code.scripts.includes(form.main)) wrong.main = `${code.name} has no ${form.main}.`;
  if (form.framework === "") wrong.framework = "Choose what the script is written for.";
  if (!whole(form.mostWorkers, 1, MOST_WORKERS)) wrong.mostWorkers = `A whole number from 1 to ${MOST_WORKERS}.`;
  if (!whole(form.gpusPerWorker, 1, MOST_WORKERS)) wrong.gpusPerWorker = `A whole number from 1 to ${MOST_WORKERS}.`;
  if (!whole(form.maxRestarts, 0, MOST_RESTARTS)) wrong.maxRestarts = `A whole number from 0 to ${MOST_RESTARTS}.`;
  if (form.dataFolder.split("/").includes("..")) wrong.dataFolder = "A folder below the data folder, without “..”.";
  else if (/[,\s]/.test(form.dataFolder)) wrong.dataFolder = "A folder's name without blanks and commas.";
  const unclosed = cut(form.own);
  if (typeof unclosed === "string") wrong.own = `${unclosed[0]?.toUpperCase()}${unclosed.slice(1)}.`;
  const named = form.variables.filter((each) => each.name !== "" || each.value !== "");
  const bad = named.find((each) => !/^[A-Za-z_][A-Za-z0-9_]*$/.test(each.name));
  const own = named.find((each) => RESERVED.has(each.name));
  if (bad) wrong.variables = `${bad.name === "" ? "A variable without a name" : bad.name}: a name has letters, digits and _, and begins with no digit.`;
  else if (own) wrong.variables = `${own.name} is the platform's own.`;
  return wrong;
}

function whole(text: string, least: number, most: number): boolean {
  return /^\d{1,9}$/.test(text.trim()) && Number(text) >= least && Number(text) <= most;
}

/** The words of the script's own arguments, or what is wrong with them. */
function cut(own: string): string[] | string {
  try {
    return splitWords(own);
  } catch (error) {
    if (error instanceof UnclosedQuote) return error.message;
    throw error;
  }
}

/** The words of the command in place of the framework's, empty if there is none, or what is wrong with them. */
export function commandOf(form: Pick<Form, "elastic" | "command">): string[] | string {
  return form.elastic ? [] : cut(form.command);
}

/** The words after `--`: of the command in place of the framework's, or of the script's own arguments. */
export function lastWords(form: Form): { readonly command: boolean; readonly words: string[] } {
  const command = commandOf(form);
  if (command.length === 0) return { command: false, words: ownWords(form) };
  return { command: true, words: typeof command === "string" ? [form.command] : command };
}

function ownWords(form: Form): string[] {
  const words = cut(form.own);
  return typeof words === "string" ? [form.own] : words;
}

export const setVariables = (form: Form): Variable[] => form.variables.filter((each) => each.name !== "");

/** The words of `args` before the variables and the script's own; the same as edt_cli/jobs.py makes. */
export function platformWords(form: Form, code: Code | null): string[] {
  const number = (text: string): string => String(Number(text) || text);
  return [
    "--exec-start", form.framework, "--numWorker", number(form.mostWorkers),
    ...(commandOf(form).length > 0 && (!code || form.main === "") ? [] : ["--model-main", form.main || "main.py"]),
    ...(code?.modelDir ? ["--model-dir", code.modelDir] : []),
    ...(number(form.gpusPerWorker) === "1" ? [] : ["--workerDeviceNum", number(form.gpusPerWorker)]),
    ...(Number(form.maxRestarts) > 0 ? ["--maxRestarts", number(form.maxRestarts)] : []),
    ...(form.name.trim() ? ["--appName", form.name.trim()] : []),
    ...(form.image.trim() ? ["--msd-image-name", form.image.trim()] : []),
    ...(form.dataFolder.trim() ? ["--cs-datastore-meta", `type=fs,data_path=${form.dataFolder.trim()}`] : []),
  ];
}

/** The whole of `args`, secrets and all: for the wire alone. */
export function argsToSend(form: Form, code: Code | null): string {
  const variables = setVariables(form).flatMap(({ name, value }) => ["--msd-env", `${name}=${value}`]);
  const { command, words } = lastWords(form);
  return joinWords([...platformWords(form, code), ...variables, ...(command ? ["--user-cmd"] : []), ...(words.length > 0 ? ["--", ...words] : [])]);
}

const OPTIONS: Readonly<Record<string, Field>> = {
  "--exec-start": "framework", "--model-main": "main", "--model-dir": "code", "--numWorker": "mostWorkers", "--workerDeviceNum": "gpusPerWorker",
  "--maxRestarts": "maxRestarts", "--appName": "name", "--msd-image-name": "image", "--cs-datastore-meta": "dataFolder", "--msd-env": "variables", "--user-cmd": "command",
  args: "own", file: "code", "the upload is refused": "code", "the body is larger than": "code",
};

/** The field that a refusal of the API is about; null: the form as a whole. */
export function fieldOf(sentence: string): Field | null {
  const found = Object.keys(OPTIONS).find((option) => sentence.startsWith(option));
  return found === undefined ? null : (OPTIONS[found] ?? null);
}
