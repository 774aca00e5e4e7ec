/** The same submission as commands to type: `edt submit …` and `curl …`. Pure. Secrets are `$NAMES`. */

import type { Code } from "./code/code";
import { type Form, lastWords, platformWords, setVariables, USUAL_FRAMEWORK } from "./form";
import { joinWords, quote } from "./words";

export interface Where {
  /** `https://edt.example.org` */
  readonly origin: string;
  readonly user: string;
}

const EXECS = "/platform/rest/deeplearning/v1/execs";
const NEXT = " \\\n  ";

/** What stands for code that is not chosen yet. */
const SOME: Pick<Code, "kind" | "name" | "gathered" | "modelDir"> = {
  kind: "script", name: "train.py", gathered: [], modelDir: null,
};

/** For a terminal in which `edt login` was done. */
export function edtCommand(form: Form, code: Code | null): string {
  const last = lastWords(form);
  const what = code ?? SOME;
  const [before, path, main] = code || !last.command ? onDisk(form, what) : [[], "-", null];
  const pieces = [
    `edt submit ${quote(path)}`,
    `--max-workers ${quote(number(form.mostWorkers))}`,
    ...(number(form.gpusPerWorker) === "1" ? [] : [`--gpus-per-worker ${quote(number(form.gpusPerWorker))}`]),
    ...(main !== null && main !== "main.py" ? [`--main ${quote(main)}`] : []),
    ...(Number(form.maxRestarts) > 0 ? [`--max-restarts ${quote(number(form.maxRestarts))}`] : []),
    ...(form.name.trim() ? [`--name ${quote(form.name.trim())}`] : []),
    ...(form.framework === USUAL_FRAMEWORK ? [] : [`--framework ${quote(form.framework)}`]),
    ...(form.image.trim() ? [`--image ${quote(form.image.trim())}`] : []),
    ...(form.dataFolder.trim() ? [`--data-path ${quote(form.dataFolder.trim())}`] : []),
    ...setVariables(form).map(({ name }) => `--env ${name}="$${name}"`),
    ...(last.command ? ["--user-cmd"] : []),
    ...(last.words.length > 0 ? [`-- ${joinWords(last.words)}`] : []),
  ];
  return [...before, pieces.join(NEXT)].join("\n");
}

/** Commands that put the code on the disk, what `edt submit` is given, and the main script inside it (null: it is the code). */
function onDisk(form: Form, code: Pick<Code, "kind" | "name" | "gathered" | "modelDir">): [string[], string, string | null] {
  if (code.kind === "script") return [[], code.name, null];
  const main = form.main || "main.py";
  if (code.kind === "folder") {
    if (code.gathered.length === 0) return [[], code.name, main];
    return [[`mkdir ${code.name} && cp -r ${joinWords(code.gathered)} ${code.name}/`], code.name, main];
  }
  const stem = code.name.replace(/\.(zip|tar|tar\.gz|tgz)$/i, "");
  const into = code.modelDir === null ? stem : ".";
  const unpack = /\.zip$/i.test(code.name)
    ? `unzip -q ${quote(code.name)} -d ${quote(into)}`
    : `${into === "." ? "" : `mkdir -p ${quote(into)} && `}tar -xf ${quote(code.name)} -C ${quote(into)}`;
  return [[unpack], code.modelDir ?? stem, main];
}

/**
 * Args go as JSON in a form field, which needs no escaping of an address. A secret is put in by the shell, so its
 * value must hold no quote and no backslash.
 */
export function curlCommand(form: Form, code: Code | null, { origin, user }: Where): string {
  const what = code ?? SOME;
  const last = lastWords(form);
  const start = json(joinWords(platformWords(form, code)));
  const variables = setVariables(form).map(({ name }) => ` --msd-env ${json(`"${name}=`)}'"$${name}"'${json('"')}`).join("");
  const rest = last.words.length > 0 ? json(`${last.command ? " --user-cmd" : ""} -- ${joinWords(last.words)}`) : "";
  const data = `'data={"args":"${start}${variables}${rest}"}'`;
  const before: string[] = [];
  let file = what.name;
  if (what.kind === "folder") {
    file = `${what.name}.tar.gz`;
    before.push(...onDisk(form, what)[0], `tar -czf ${quote(file)} ${quote(what.name)}`);
  }
  const command = [
    `curl -u ${quote(user)}`,
    ...(code || !last.command ? [`-F ${quote(/[";,\\]/.test(file) ? `file=@"${file.replaceAll(/["\\]/g, "\\$&")}"` : `file=@${file}`)}`] : []),
    `--form-string ${data}`,
    quote(origin + EXECS),
  ];
  return [...before, command.join(NEXT)].join("\n");
}

const number = (text: string): string => String(Number(text) || text);

/** A text as it stands inside a JSON string, inside single quotes of a shell. */
function json(text: string): string {
  return JSON.stringify(text).slice(1, -1).replaceAll("'", `'"'"'`);
}
