/** What just happened, told in a corner for a while: `toast.say("…")`, `toast.problem(error)`. */

import { asProblem } from "../api/problem";

export interface Toast {
  readonly id: number;
  readonly tone: "good" | "bad";
  readonly title: string;
  readonly detail: string;
}

const LASTS_MS = { good: 5_000, bad: 12_000 };
const MOST = 4;

let shown: readonly Toast[] = [];
let last = 0;
const watchers = new Set<() => void>();

function show(next: readonly Toast[]): void {
  shown = next;
  for (const watcher of watchers) watcher();
}

function add(tone: Toast["tone"], title: string, detail: string): void {
  if (shown.some((each) => each.title === title && each.detail === detail)) return;
  const id = ++last;
  show([...shown, { id, tone, title, detail }].slice(-MOST));
  window.setTimeout(() => toast.close(id), LASTS_MS[tone]);
}

export const toast = {
  say: (title: string, detail = ""): void => add("good", title, detail),
  problem: (error: unknown): void => {
    const problem = asProblem(error);
    if (problem.status !== 401) add("bad", problem.title, problem.detail);
  },
  close: (id: number): void => show(shown.filter((each) => each.id !== id)),
  watch: (watcher: () => void): (() => void) => {
    watchers.add(watcher);
    return () => watchers.delete(watcher);
  },
  shown: (): readonly Toast[] => shown,
};
