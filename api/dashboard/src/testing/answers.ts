/** Explanations and queues, for tests: whole, with only what matters said. */

import type { Explained, Queue, Suggestion } from "../api/types";

const NOBODY = { jobs: 0, slots: 0 };

export function waits(values: Partial<NonNullable<Explained["waits"]>> = {}): NonNullable<Explained["waits"]> {
  return { rank: 2, waiting: 5, rule: "capacity", sentence: "other jobs hold the slots", need: 1, free: 0, not_before: null, by: [], hidden: NOBODY, ...values };
}

export function holds(values: Partial<NonNullable<Explained["holds"]>> = {}): NonNullable<Explained["holds"]> {
  return {
    slots: 2,
    share: 2,
    min: 1,
    max: 8,
    gain: 0.5,
    price: 0.2,
    worth: "its next slot is worth half the price of a slot",
    next: { slots: 4, rule: "worth", sentence: "others make more of the slots" },
    takers: [],
    hidden: NOBODY,
    ...values,
  };
}

export function expected(values: Partial<NonNullable<Explained["expected"]>> = {}): NonNullable<Explained["expected"]> {
  return { start: null, end: null, coarse: false, until: 1000 + 14 * 86_400, guessed: 0, first: null, error: null, sentence: "Nothing is expected.", ...values };
}

export function explained(values: Partial<Explained> = {}): Explained {
  return {
    job: "edt-1",
    at: 1000,
    phase: "waiting",
    sentence: "edt-1 waits.",
    waits: null,
    holds: null,
    entitlement: null,
    nodes: null,
    changes: [],
    untried: 0,
    expected: null,
    ...values,
  };
}

export function suggestion(values: Partial<Suggestion> = {}): Suggestion {
  return {
    change: { kind: "job-stopped", job: "edt-9" },
    sentence: "edt-9 is stopped",
    slots: 1,
    plans: 2,
    resubmit: false,
    command: "edt stop edt-9",
    ...values,
  };
}

export function queue(path: string, values: Partial<Queue> = {}): Queue {
  return {
    path,
    name: path === "" ? "root" : path.slice(path.lastIndexOf("/") + 1),
    parent: path === "" ? null : path.slice(0, path.lastIndexOf("/")),
    depth: path.split("/").length - 1,
    quota: 0,
    weight: 1,
    limit: null,
    policy: "efficient",
    used: 0,
    entitled: 0,
    demand: 0,
    running: 0,
    waiting: 0,
    usage: 0,
    users: [],
    others: { users: 0, entitled: 0, held: 0, running: 0, waiting: 0, usage: 0 },
    waiting_jobs: [],
    ...values,
  };
}

export function user(name: string, values: Partial<Queue["users"][number]> = {}): Queue["users"][number] {
  return { user: name, entitled: 1, held: 0, running: 0, waiting: 0, usage: 0, ...values };
}

export function waiting(job: string, rank: number, values: Partial<Queue["waiting_jobs"][number]> = {}): Queue["waiting_jobs"][number] {
  return { job, owner: "ana", name: "digits", priority: 1, need: 1, max: 4, rank, blocking: "quota", reason: "nothing is free", since: 1000, ...values };
}
