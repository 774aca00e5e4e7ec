/** What a job was submitted with, and the commands that submit it again. */

import { expect, it } from "vitest";

import { asCurl, asEdt, option, submitted } from "./commands";

const ARGS =
  "--exec-start edtPyTorch --numWorker=4 --model-main main.py --appName 'my digits' --msd-env KEY=**** --lr 0.1 -- --numWorker 9";

it("knows the platform's words from the script's own", () => {
  const job = submitted(ARGS);
  expect(option(job, "--numWorker")).toBe("4");
  expect(job.own).toEqual(["--lr", "0.1", "--numWorker", "9"]);
});

it("shows a variable by its name alone", () => {
  expect(submitted(ARGS).environment).toEqual(["KEY"]);
});

it("takes the last of an option that was given twice", () => {
  expect(option(submitted("--numWorker 2 --numWorker 3"), "--numWorker")).toBe("3");
});

it("becomes a command that a shell reads as it was meant", () => {
  expect(asEdt(submitted(ARGS)).split(" \\\n  ")).toEqual([
    "edt submit main.py",
    "--max-workers 4",
    "--name 'my digits'",
    "--env KEY",
    "-- --lr 0.1 --numWorker 9",
  ]);
});

it("names folder, main script, framework, image, restarts and data where they are not the usual", () => {
  const args =
    "--exec-start edtTensorFlow --model-dir code --model-main run.py --numWorker 2 --maxRestarts 3 --msd-image-name me/torch:1 --cs-datastore-meta type=fs,data_path=mnist";
  expect(asEdt(submitted(args))).toContain("submit code");
  for (const part of ["--main run.py", "--framework edtTensorFlow", "--image me/torch:1", "--max-restarts 3", "--data-path mnist"]) {
    expect(asEdt(submitted(args))).toContain(part);
  }
});

it("names the job from whose checkpoint it began", () => {
  const job = submitted("--exec-start edtPyTorch --resume-from edt-7 --lr 0.1");
  expect(asEdt(job)).toContain("--resume-from edt-7");
  expect(job.own).toEqual(["--lr", "0.1"]);
});

it("becomes a request whose args survive the address", () => {
  const text = asCurl(submitted(ARGS), ARGS, "https://edt.example", "ana");
  const url = new URL(/'(https:[^']+(?:'"'"'[^']*)*)'/.exec(text)?.[1]?.replaceAll(`'"'"'`, "'") ?? "");
  expect(url.searchParams.get("args")).toBe(ARGS);
  expect(text).toContain("-F file=@main.tar");
});

it("shows args that nobody could cut, rather than nothing", () => {
  expect(submitted("--numWorker 2 'open").own).toEqual(["'open"]);
});

it("knows the command of a gang from the options before it", () => {
  for (const args of ["--exec-start distPyTorch --numWorker 2 --user-cmd -- torchrun --nproc_per_node=1 train.py", "--exec-start distPyTorch --numWorker 2 --user-cmd torchrun --nproc_per_node=1 train.py"]) {
    const job = submitted(args);
    expect(job.command).toEqual(["torchrun", "--nproc_per_node=1", "train.py"]);
    expect(job.own).toEqual([]);
    expect(asEdt(job)).toContain("--user-cmd -- torchrun --nproc_per_node=1 train.py");
  }
});

it("needs no file of a prebuilt model", () => {
  const args = "--exec-start edtPyTorch --pbmodel-name MNIST --epochs 2";
  expect(asCurl(submitted(args), args, "https://edt.example", "ana")).toMatch(/^curl -u ana [^]*-X POST [^]*MNIST/);
  expect(asCurl(submitted(args), args, "https://edt.example", "ana")).not.toContain("-F file");
  expect(asEdt(submitted(args))).toContain("curl");
});

it("keeps queue, priority, sizes, order and times, which are no arguments of the script", () => {
  const args = "--exec-start edtPyTorch --model-main main.py --numWorker 8 --minWorkers 2 --sizes 2,4,8 --queue /a/b --msd-priority 3 --after edt-1 --deadline +6h --time-limit 90m --gpu-model a100 --lr 0.1";
  expect(submitted(args).own).toEqual(["--lr", "0.1"]);
  for (const part of ["--min-workers 2", "--sizes 2,4,8", "--queue /a/b", "--priority 3", "--after edt-1", "--deadline +6h", "--time-limit 90m", "--gpu-model a100"]) {
    expect(asEdt(submitted(args))).toContain(part);
  }
});
