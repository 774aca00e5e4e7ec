/** Why a job's size changed and how engines ended, in words. Pure. */

const CAUSES: Readonly<Record<string, string>> = {
  submit: "It started",
  restart: "It started again",
  "E-known": "Its script said how many engines it can use",
  "job-finished": "Another job ended",
  "slots-free": "Slots came free",
  room: "It made room for another job",
  reclaim: "Another user or queue is entitled to its slots",
  priority: "A job of a higher priority got its slots",
  bounds: "Its least or most workers were changed",
  worth: "Speeds were measured, and another size is worth more",
  compact: "It moved onto fewer nodes, or made room for a job that needs fewer then",
  stop: "It was stopped",
  pause: "It was paused",
  extend: "It was given another number of epochs",
  drain: "Its node is being drained",
  "node-lost": "Its node was lost",
  left: "An engine left because its node's agent was ended",
  "engine-lost": "An engine was lost",
};

/** The cause of a resize as a sentence; a cause of a newer release as it came. */
export function causeWords(cause: string): string {
  return CAUSES[cause] ?? cause;
}

const FAILURES: Readonly<Record<string, string>> = {
  lost: "Engine lost",
  "script-error": "The script failed",
  "pull-failed": "A joining engine did not get the weights",
};

export function failureWords(kind: string): string {
  return FAILURES[kind] ?? kind;
}
