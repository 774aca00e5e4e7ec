import { describe, expect, it } from "vitest";

import type { Code } from "./code/code";
import { curlCommand, edtCommand } from "./commands";
import { argsToSend, EMPTY, fieldOf, type Form, mistakes } from "./form";
import { splitWords } from "./words";

const script: Code = {
  kind: "script", name: "train.py", scripts: ["train.py"], whole: true, modelDir: null, files: 1, bytes: 10, leftOut: 0, gathered: [],
  archive: () => Promise.reject(new Error("not sent")),
};
const folder: Code = { ...script, kind: "folder", name: "my net", scripts: ["main.py", "go.py"], modelDir: "my net" };
const where = { origin: "http://127.0.0.1:9280", user: "ada" };
const form = (more: Partial<Form> = {}): Form => ({ ...EMPTY, main: "train.py", ...more });
const full = form({
  mostWorkers: "8", gpusPerWorker: "2", own: `--epochs 3 --note "it's \\$5"`, name: "my job", image: "lab/torch:2", maxRestarts: "2",
  dataFolder: "mnist", variables: [{ name: "API_KEY", value: "top'secret" }, { name: "", value: "" }],
});

/** A command as a shell would cut it; `$NAME` in double quotes put in. */
function typed(command: string, environ: Record<string, string> = {}): string[] {
  return splitWords(command.replaceAll(/"\$(\w+)"/g, (_, name: string) => `"${environ[name] ?? ""}"`));
}

describe("what is sent", () => {
  it("is args that the API cuts into the same words", () => {
    expect(splitWords(argsToSend(full, script))).toEqual([
      "--exec-start", "edtPyTorch", "--numWorker", "8", "--model-main", "train.py", "--workerDeviceNum", "2", "--maxRestarts", "2",
      "--appName", "my job", "--msd-image-name", "lab/torch:2", "--cs-datastore-meta", "type=fs,data_path=mnist", "--msd-env",
      "API_KEY=top'secret", "--", "--epochs", "3", "--note", "it's $5",
    ]);
  });

  it("says nothing of what is left as it is", () => {
    expect(argsToSend(form(), script)).toBe("--exec-start edtPyTorch --numWorker 4 --model-main train.py");
  });

  it("is a command in place of the script, with or without code", () => {
    const gang = form({ framework: "distPyTorch", elastic: false, command: "torchrun --nproc_per_node=2 train.py", own: "--left out" });
    const words = ["--exec-start", "distPyTorch", "--numWorker", "4"];
    const command = ["--user-cmd", "--", "torchrun", "--nproc_per_node=2", "train.py"];
    expect(splitWords(argsToSend(gang, script))).toEqual([...words, "--model-main", "train.py", ...command]);
    expect(splitWords(argsToSend(gang, null))).toEqual([...words, ...command]);
    expect(mistakes(gang, null)).toEqual({});
    expect(edtCommand(gang, null).split(/ \\\n {2}/)).toEqual([
      "edt submit -", "--max-workers 4", "--framework distPyTorch", "--user-cmd", "-- torchrun --nproc_per_node=2 train.py",
    ]);
    expect(curlCommand(gang, null, where)).not.toContain("-F");
    expect(curlCommand(gang, script, where)).toContain("--user-cmd -- torchrun");
  });

  it("leaves a command out where the framework is elastic", () => {
    expect(argsToSend(form({ command: "bash run.sh" }), script)).not.toContain("--user-cmd");
    expect(mistakes(form({ command: "bash 'run.sh" }), script)).toEqual({});
    expect(mistakes(form({ elastic: false, command: "bash 'run.sh" }), script).command).toMatch(/never closed/);
  });

  it("names the folder in which the job starts", () => {
    expect(splitWords(argsToSend(form({ main: "go.py" }), folder))).toContain("my net");
  });
});

describe("the command for a terminal", () => {
  it("is the same submission, its secrets taken from the shell", () => {
    const command = edtCommand(full, script);
    expect(command).not.toContain("secret");
    expect(typed(command, { API_KEY: "x y" })).toEqual([
      "edt", "submit", "train.py", "--max-workers", "8", "--gpus-per-worker", "2", "--max-restarts", "2", "--name",
      "my job", "--image", "lab/torch:2", "--data-path", "mnist", "--env", "API_KEY=x y", "--", "--epochs", "3", "--note", "it's $5",
    ]);
  });

  it("names a folder and its script", () => {
    expect(typed(edtCommand(form({ main: "go.py" }), folder)).slice(1)).toEqual([
      "submit", "my net", "--max-workers", "4", "--main", "go.py",
    ]);
  });

  it("gathers loose files first", () => {
    const loose: Code = { ...folder, name: "code", modelDir: "code", gathered: ["main.py", "my data.csv"] };
    expect(edtCommand(form({ main: "main.py" }), loose)).toMatch(/^mkdir code && cp -r main.py 'my data.csv' code\/\nedt submit code /);
  });

  it("unpacks an archive first", () => {
    const zip: Code = { ...folder, kind: "archive", name: "net.zip", modelDir: null };
    expect(edtCommand(form({ main: "main.py" }), zip)).toMatch(/^unzip -q net.zip -d net\nedt submit net/);
    expect(edtCommand(form({ main: "main.py" }), { ...zip, name: "n.tar.gz", modelDir: "inner" })).toMatch(/^tar -xf n.tar.gz -C \.\nedt submit inner/);
  });
});

describe("the command for curl", () => {
  /** The args that the API would read out of the form field. */
  function args(command: string, environ: Record<string, string> = {}): string[] {
    const words = typed(command, environ);
    const data = words[words.indexOf("--form-string") + 1] as string;
    return splitWords((JSON.parse(data.slice("data=".length)) as { args: string }).args);
  }

  it("sends the same args, its secrets taken from the shell", () => {
    const command = curlCommand(full, script, where);
    expect(command).not.toContain("secret");
    const withSecret = { ...full, variables: [{ name: "API_KEY", value: "two words" }] };
    expect(args(command, { API_KEY: "two words" })).toEqual(splitWords(argsToSend(withSecret, script)));
  });

  it("packs a folder first, and keeps curl from reading its name as options", () => {
    const command = curlCommand(form({ main: "go.py" }), { ...folder, name: "a;b" }, where);
    const [pack, send] = command.split("\n") as [string, string];
    expect(splitWords(pack)).toEqual(["tar", "-czf", "a;b.tar.gz", "a;b"]);
    expect(splitWords(`${send} x`)).toContain("curl");
    expect(typed(command)).toContain('file=@"a;b.tar.gz"');
  });
});

describe("what the form refuses by itself", () => {
  it("is nothing where all is well", () => {
    expect(mistakes(full, script)).toEqual({});
  });

  it.each<[Partial<Form>, keyof Form]>([
    [{ mostWorkers: "0" }, "mostWorkers"], [{ mostWorkers: "many" }, "mostWorkers"], [{ gpusPerWorker: "1.5" }, "gpusPerWorker"],
    [{ maxRestarts: "-1" }, "maxRestarts"], [{ own: "'open" }, "own"], [{ dataFolder: "../up" }, "dataFolder"],
    [{ variables: [{ name: "2X", value: "" }] }, "variables"], [{ variables: [{ name: "EDT_TAG", value: "1" }] }, "variables"],
    [{ main: "" }, "main"],
  ])("is %j, at its field", (more, field) => {
    expect(Object.keys(mistakes(form(more), script))).toEqual([field]);
  });

  it("is a main script that the folder does not have", () => {
    expect(mistakes(form({ main: "gone.py" }), folder).main).toContain("my net has no gone.py");
  });

  it("is a form without code", () => {
    expect(mistakes(form(), null).code).toBeDefined();
  });
});

describe("what the API refuses", () => {
  it("is told at the field it is about", () => {
    expect(fieldOf("--numWorker: got 'x'; it takes a whole number")).toBe("mostWorkers");
    expect(fieldOf("--model-main: got 'a.py'; it takes a file of the upload")).toBe("main");
    expect(fieldOf("the upload is refused: it is empty")).toBe("code");
    expect(fieldOf("the server's disk is full")).toBeNull();
  });
});
