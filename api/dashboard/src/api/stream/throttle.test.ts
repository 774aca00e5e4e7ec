/** Doing a thing at once, and then at most once a while. */

import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { Throttle } from "./throttle";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it("does the first at once, and of many that follow only the last, when its time has come", () => {
  const throttle = new Throttle(100);
  const done: number[] = [];
  for (const number of [1, 2, 3]) throttle.run("a", () => done.push(number));
  expect(done).toEqual([1]);
  vi.advanceTimersByTime(100);
  expect(done).toEqual([1, 3]);
});

it("keeps its pace however often it is asked", () => {
  const throttle = new Throttle(100);
  let done = 0;
  for (let time = 0; time < 1_000; time += 10) {
    throttle.run("a", () => (done += 1));
    vi.advanceTimersByTime(10);
  }
  expect(done).toBe(11);
});

it("knows things of different names apart, and forgets all when cleared", () => {
  const throttle = new Throttle(100);
  const done: string[] = [];
  throttle.run("a", () => done.push("a"));
  throttle.run("b", () => done.push("b"));
  throttle.run("a", () => done.push("late"));
  throttle.clear();
  vi.advanceTimersByTime(1_000);
  expect(done).toEqual(["a", "b"]);
});
