import { describe, expect, it } from "vitest";

import type { EngineTimes, StepTimes } from "../../../api/types";
import { firstRows, rowsOf, stepTime, totalSeconds, waitWords } from "./stepTimes";

const SECONDS = { data: 0.001, forward: 0.02, backward: 0.025, copies: 0.002, reduce: 0.001, wait: 0, apply: 0.001, other: 0 };

function engine(allocation: number, values: Partial<EngineTimes> = {}): EngineTimes {
  return {
    rank: allocation - 1,
    allocation,
    node: "n1",
    slot: String(allocation - 1),
    micro_batches: 2,
    seconds: SECONDS,
    efficiency: 0.9,
    slower: null,
    ...values,
  };
}

function times(values: Partial<StepTimes> = {}): StepTimes {
  return {
    time: 1,
    steps: 40,
    step_seconds: 0.05,
    efficiency: 0.9,
    engines: [engine(1), engine(2)],
    others: 0,
    mean_of_others: null,
    waited_for: null,
    waited_seconds: 0,
    remarks: [],
    ...values,
  };
}

describe("the rows of the chart", () => {
  it("are the engines with their places, and the mean of those that have none", () => {
    const mean = { micro_batches: 2, seconds: SECONDS, efficiency: 0.9 };
    const rows = rowsOf(times({ engines: [engine(1), engine(2, { node: null, slot: null })], others: 84, mean_of_others: mean }));
    expect(rows.map(({ name, place }) => [name, place])).toEqual([
      ["Engine 1", "n1, slot 0"],
      ["Engine 2", ""],
      ["84 others", "mean"],
    ]);
    expect(totalSeconds(mean)).toBeCloseTo(0.05);
  });

  it("are at first few, but with all of whom something is said", () => {
    const engines = Array.from({ length: 30 }, (_, at) => engine(at + 1, { slower: at === 20 ? 0.4 : null }));
    const rows = firstRows(rowsOf(times({ engines, waited_for: 28 })), 16);
    expect(rows.map(({ key }) => Number(key)).slice(15)).toEqual([16, 21, 28]);
  });
});

describe("what is said about waiting", () => {
  it("names the engine, and that it has more micro-batches", () => {
    const engines = [engine(1, { micro_batches: 3 }), engine(2, { micro_batches: 2 }), engine(3, { micro_batches: 2 })];
    expect(waitWords(times({ waited_for: 1, waited_seconds: 0.0192, engines }))).toBe(
      "The others wait 19.2 ms a step for engine 1, which has more micro-batches.",
    );
    expect(waitWords(times({ waited_for: 1, waited_seconds: 0.0192 }))).toBe(
      "The other engine waits 19.2 ms a step for engine 1.",
    );
    expect(waitWords(times({ waited_for: 1, waited_seconds: 0.0192, engines }), true)).toMatch(/others waited 19.2 ms [^]*which had more/);
  });

  it("is nothing where it is short, or where a remark says it", () => {
    expect(waitWords(times())).toBeNull();
    expect(waitWords(times({ waited_for: 1, waited_seconds: 0.002 }))).toBeNull();
    expect(waitWords(times({ waited_for: 1, waited_seconds: 0.02, engines: [engine(1, { slower: 0.4 }), engine(2)] }))).toBeNull();
  });
});

it("a step's time has three digits", () => {
  expect([0, 0.0004, 0.05499, 0.9996, 12.345].map(stepTime)).toEqual(["0 ms", "0.4 ms", "55 ms", "1 s", "12.3 s"]);
});
