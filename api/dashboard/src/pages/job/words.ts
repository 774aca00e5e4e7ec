/** Words for what the API names by codes. Pure. */

import { isOver, type Job } from "../../api/types";
import { plural } from "../../components/format";

/** The kind and the framework of a job, as a noun: "edtPyTorch job", "PyTorch gang". */
export function kindWords(job: Pick<Job, "kind" | "framework">): string {
  return `${job.framework} ${job.kind === "gang" ? "gang" : "job"}`;
}

/** What it means for a job that it is a gang. */
export function notElastic(job: Pick<Job, "processes" | "max_workers" | "slots" | "state" | "attempts">): string {
  const over = isOver(job.state);
  if (job.slots > 0 || (over && job.attempts > 0)) {
    return job.processes === 1
      ? `This job is not elastic: its process ${over ? "kept" : "keeps"} ${job.max_workers === 1 ? "its slot" : `its ${job.max_workers} slots`}.`
      : `This job is not elastic: its ${plural(job.processes ?? 0, "process", "processes")} started together and ${over ? "kept" : "keep"} their slots.`;
  }
  if (over) return `This job is not elastic: it needed ${plural(job.max_workers, "slot")} at once, and never started.`;
  return `This job is not elastic: it starts when ${plural(job.max_workers, "slot")} are free at once, and keeps them.`.replace("1 slot are", "1 slot is");
}

/** What is lost with a job that is stopped, and what stays; follows its name. */
export function lostByStopping(job: Pick<Job, "kind" | "checkpoint_step" | "id">): string {
  const stays = "Its logs and what it saved so far stay.";
  if (job.kind === "gang") return `is told to end, and has some seconds to save. It cannot go on later. ${stays}`;
  if (job.checkpoint_step === null) return `ends at once and has no checkpoint yet, so it cannot go on later. ${stays}`;
  return `ends at once. Its training is kept up to step ${job.checkpoint_step} at least, from which a new job can go on: edt submit … --resume-from ${job.id}. ${stays}`;
}

/** What is lost with a job that is paused; follows its name. Null: nothing, so nobody needs to be asked. */
export function lostByPausing(job: Pick<Job, "kind" | "engines" | "slots">): string | null {
  if (job.kind === "elastic" && (job.engines !== null || job.slots === 0)) return null;
  const why = job.kind === "gang" ? "is not elastic" : "has not said that it is elastic";
  return `${why}: its processes are told to end, have some seconds to save, and start again from the beginning of their script when it is resumed.`;
}

const CAUSES: Readonly<Record<string, string>> = {
  submit: "Started",
  restart: "Started again",
  "E-known": "Engines known",
  "job-finished": "Another job ended",
  "slots-free": "Slots came free",
  room: "Room for another job",
  reclaim: "Reclaimed by whoever is entitled",
  priority: "Higher priority",
  bounds: "Other least or most workers",
  worth: "Another size is worth more",
  compact: "Onto fewer nodes",
  stop: "Stopped",
  pause: "Paused",
  extend: "Another number of epochs",
  drain: "Node drained",
  "node-lost": "Node lost",
  left: "Engine left with its agent",
  "engine-lost": "Engine lost",
};

/** Why a job's size changed. */
export function causeWord(cause: string): string {
  return CAUSES[cause] ?? cause;
}

/** A change that nobody wanted. */
export function isLoss(cause: string): boolean {
  return cause === "node-lost" || cause === "engine-lost";
}

/** What a training tells besides its loss, which stands for itself. */
export function otherMetrics<T>(metrics: Readonly<Record<string, T>>): readonly (readonly [string, T])[] {
  return Object.entries(metrics).filter(([name]) => name.toLowerCase() !== "loss");
}

const VALIDATION = "val_";

/** What a metric of the training is called in a validation: "val_accuracy" of "accuracy". */
export function validationName(name: string): string {
  return `${VALIDATION}${name}`;
}

/** The name of a validation's metric without what says so. */
export function withoutValidation(name: string): string {
  return name.startsWith(VALIDATION) ? name.slice(VALIDATION.length) : name;
}

/** A metric's name as people write it: "gradient_noise_scale" is a keyword of a script. */
export function metricWord(name: string): string {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
