/** What a job was submitted with, and the commands that would submit it again. Pure. */

import { joinWords, quote, splitWords } from "../../submit/words";

export interface Submitted {
  /** Options of the platform in their order, `--name` and value; the last of a name counts. */
  readonly options: readonly (readonly [string, string])[];
  /** Names of the variables it was given; their values are masked by the API. */
  readonly environment: readonly string[];
  /** The script's own arguments. */
  readonly own: readonly string[];
  /** The command that its processes run in place of the script; empty: there is none. */
  readonly command: readonly string[];
}

/** The options of the platform that a person meets; all else on the line is the script's. Those of WMLA all begin so. */
const OURS =
  /^--(?:exec-start|model-main|model-dir|appName|numWorker|minWorkers|sizes|workerDeviceNum|gpuPerWorker|maxRestarts|gpu-model|queue|after|deadline|time-limit|resume-from|edt-options|cs-[a-z-]+|data-source|user-cmd|pbmodel-[a-z]+|msd-[a-z0-9-]+|ig|consumer|submit-user|debug-level|worker[A-Z]\w+|numDriver|driver[A-Z]\w+|numPs|conda-[a-z-]+|python-version|lsf-[a-z-]+|sc-[a-z]+)$/;

export function submitted(args: string): Submitted {
  const options: (readonly [string, string])[] = [];
  const own: string[] = [];
  let command: string[] = [];
  const words = wordsOf(args);
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at] ?? "";
    if (word === "--") {
      own.push(...words.slice(at + 1));
      break;
    }
    const equals = word.indexOf("=");
    const name = (equals < 0 ? word : word.slice(0, equals)).replace(/^[\u2010-\u2015\u2212]{1,3}/, "--");
    if (name === "--user-cmd") {
      command = [...(equals < 0 ? [] : splitWords(word.slice(equals + 1))), ...words.slice(at + (words[at + 1] === "--" ? 2 : 1))];
      break;
    }
    if (!OURS.test(name)) own.push(word);
    else if (equals >= 0) options.push([name, word.slice(equals + 1)]);
    else options.push([name, words[++at] ?? ""]);
  }
  const environment = options.filter(([name]) => name === "--msd-env").map(([, value]) => value.split("=")[0] ?? "");
  return { options, environment, own, command };
}

/** Args that the API took can be cut; of others there is nothing more to say than how they look. */
function wordsOf(args: string): readonly string[] {
  try {
    return splitWords(args);
  } catch {
    return args.split(/\s+/).filter(Boolean);
  }
}

/** The value of an option; undefined: it was not given. */
export function option({ options }: Submitted, ...names: readonly string[]): string | undefined {
  return options.findLast(([name]) => names.includes(name))?.[1];
}

const NEXT = " \\\n  ";

/** The same job by the command line tool. A variable's value comes from the shell: the API keeps it out of sight. */
export function asEdt(job: Submitted): string {
  if (option(job, "--pbmodel-name") !== undefined) return "# A prebuilt model is submitted with curl.";
  const folder = option(job, "--model-dir");
  const main = option(job, "--model-main") ?? "main.py";
  const path = job.command.length > 0 ? (option(job, "--model-main") ?? "-") : main; // a command needs no code
  const pieces = [`edt submit ${quote(folder ?? path)}`];
  const add = (name: string, value: string | undefined): void => {
    if (value !== undefined && value !== "") pieces.push(`${name} ${quote(value)}`);
  };
  if (folder !== undefined && main !== "main.py") add("--main", main);
  add("--max-workers", option(job, "--numWorker"));
  add("--gpus-per-worker", option(job, "--workerDeviceNum", "--gpuPerWorker"));
  add("--min-workers", option(job, "--minWorkers"));
  add("--sizes", option(job, "--sizes"));
  add("--max-restarts", option(job, "--maxRestarts"));
  add("--name", option(job, "--appName"));
  add("--queue", option(job, "--queue", "--consumer"));
  add("--priority", option(job, "--msd-priority"));
  add("--after", option(job, "--after"));
  add("--deadline", option(job, "--deadline"));
  add("--time-limit", option(job, "--time-limit"));
  add("--pending-timeout", option(job, "--msd-pending-timeout"));
  add("--gpu-model", option(job, "--gpu-model"));
  add("--resume-from", option(job, "--resume-from"));
  const framework = option(job, "--exec-start");
  if (framework !== "edtPyTorch") add("--framework", framework);
  add("--image", option(job, "--msd-image-name"));
  add("--data-path", option(job, "--cs-datastore-meta")?.match(/data_path=([^,]+)/)?.[1]);
  for (const name of job.environment) pieces.push(`--env ${name}`);
  if (job.command.length > 0) pieces.push(`--user-cmd -- ${joinWords(job.command)}`);
  else if (job.own.length > 0) pieces.push(`-- ${joinWords(job.own)}`);
  return pieces.join(NEXT);
}

/** The same job by an HTTP request; `origin` is where this API stands. Masked values are to be put in again. */
export function asCurl(job: Submitted, args: string, origin: string, user: string): string {
  const prebuilt = option(job, "--pbmodel-name") !== undefined;
  const file = `${(option(job, "--model-dir") ?? option(job, "--model-main") ?? "main.py").replace(/\.py$/, "")}.tar`;
  const url = `${origin}/platform/rest/deeplearning/v1/execs?args=${encodeURIComponent(args)}`;
  return [`curl -u ${quote(user)}`, prebuilt ? "-X POST" : `-F file=@${quote(file)}`, quote(url)].join(NEXT);
}
