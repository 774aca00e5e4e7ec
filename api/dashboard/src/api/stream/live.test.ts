/** The line to the API against answers that were read before what it tells. */

import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { job, pageOf } from "../../testing/jobs";
import { EVERY_JOB, keys } from "../keys";
import type { Job } from "../types";
import { live } from "./live";
import type { JobPages } from "./patch";

/** What a browser gives the page: a source of events that the test speaks through. */
class Line {
  static last: Line;
  readonly #ears = new Map<string, (message: { data: string; lastEventId: string }) => void>();

  constructor() {
    Line.last = this;
  }

  addEventListener(name: string, ear: (message: { data: string; lastEventId: string }) => void): void {
    this.#ears.set(name, ear);
  }

  say(name: string, data: unknown): void {
    this.#ears.get(name)?.({ data: JSON.stringify(data), lastEventId: "1" });
  }

  close(): void {
    this.#ears.clear();
  }
}

/** A question whose answers the test gives, in the order in which it was asked. */
function asked<T>(queries: QueryClient, queryKey: readonly unknown[]): ((answer: T) => void)[] {
  const answers: ((answer: T) => void)[] = [];
  const observer = new QueryObserver(queries, {
    queryKey,
    queryFn: () => new Promise<T>((resolve) => answers.push(resolve)),
  });
  observer.subscribe(() => undefined);
  return answers;
}

const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
const running = job(1, { state: "RUNNING" });
const finished = job(1, { state: "FINISHED" });

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("window", globalThis);
  vi.stubGlobal("document", { hidden: false });
  vi.stubGlobal("EventSource", Line);
  live.start(queries);
});

afterEach(() => {
  live.stop();
  queries.clear();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("an answer that was on its way when the stream brought something newer", () => {
  it("does not put a job back to what it was", async () => {
    const answers = asked<Job>(queries, keys.job("edt-1"));
    Line.last.say("jobs", { items: [finished], removed: [] });
    answers[0]?.(running);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(answers).toHaveLength(2);
    answers[1]?.(finished);
    await vi.advanceTimersByTimeAsync(10);
    expect(queries.getQueryData<Job>(keys.job("edt-1"))?.state).toBe("FINISHED");
  });

  it("does not put a list back to what it was", async () => {
    const answers = asked<JobPages>(queries, keys.jobs(EVERY_JOB));
    const page = (each: Job): JobPages => ({ pages: [{ ...pageOf([1]), items: [each] }], pageParams: [null] });
    answers[0]?.(page(running));
    await vi.advanceTimersByTimeAsync(10);
    void queries.refetchQueries({ queryKey: keys.jobLists });
    Line.last.say("jobs", { items: [finished], removed: [] });
    answers[1]?.(page(running));
    await vi.advanceTimersByTimeAsync(2_000);
    expect(answers).toHaveLength(3);
    answers[2]?.(page(finished));
    await vi.advanceTimersByTimeAsync(10);
    expect(queries.getQueryData<JobPages>(keys.jobs(EVERY_JOB))?.pages[0]?.items[0]?.state).toBe("FINISHED");
  });

  it("is not asked for again where none was on its way", async () => {
    const answers = asked<Job>(queries, keys.job("edt-1"));
    answers[0]?.(running);
    await vi.advanceTimersByTimeAsync(10);
    Line.last.say("jobs", { items: [finished], removed: [] });
    await vi.advanceTimersByTimeAsync(2_000);
    expect(answers).toHaveLength(1);
    expect(queries.getQueryData<Job>(keys.job("edt-1"))?.state).toBe("FINISHED");
  });
});
