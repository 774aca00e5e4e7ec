/** Words for what the API names by codes. Pure. */

/** "edtPyTorch" as people say it. */
export function frameworkWord(framework: string): string {
  const word = framework.replace(/^edt/i, "") || framework;
  return word === "Tensorflow" ? "TensorFlow" : word;
}

const CAUSES: Readonly<Record<string, string>> = {
  submit: "Started",
  restart: "Started again",
  "E-known": "Engines known",
  "job-finished": "Another job ended",
  "slots-free": "Slots came free",
  room: "Room for another job",
  stop: "Stopped",
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

/** A metric's name as people write it: "gradient_noise_scale" is a keyword of a script. */
export function metricWord(name: string): string {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
