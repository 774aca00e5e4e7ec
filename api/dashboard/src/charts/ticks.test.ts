import { beforeAll, describe, expect, it, vi } from "vitest";
import { compact, niceBounds, niceStep, powerBounds, powerTicks, spansPowers, timeStep, timeTicks } from "./ticks";

beforeAll(() => {
  vi.stubEnv("TZ", "Europe/Zurich");
});

const at = (text: string): number => new Date(text).getTime() / 1000;
const labels = (from: string, to: string, width: number): string[] =>
  timeTicks({ from: at(from), to: at(to) }, width).map((tick) => tick.label);

describe("a time axis", () => {
  it("has round local times, no more than fit", () => {
    expect(labels("2026-11-21T12:01", "2026-11-21T13:01", 700)).toEqual([
      "12:10", "12:20", "12:30", "12:40", "12:50", "13:00",
    ]);
  });

  it("has seconds where it is five minutes long", () => {
    expect(labels("2026-11-21T12:00", "2026-11-21T12:05", 1000)).toContain("12:00:30");
  });

  it("names the day at midnight", () => {
    expect(labels("2026-11-21T21:00", "2026-11-22T03:00", 700)).toEqual([
      "21:00", "22:00", "23:00", "22 Nov", "01:00", "02:00", "03:00",
    ]);
  });

  it("counts in days where it is weeks long, and stays put when it is moved", () => {
    const here = timeTicks({ from: at("2026-11-01T00:00"), to: at("2026-11-29T00:00") }, 600);
    const moved = timeTicks({ from: at("2026-11-03T00:00"), to: at("2026-12-01T00:00") }, 600);
    expect(here.every((tick) => tick.day)).toBe(true);
    expect(here.length).toBeGreaterThan(2);
    const both = here.filter((tick) => tick.at >= at("2026-11-03T00:00")).map((tick) => tick.at);
    expect(moved.map((tick) => tick.at)).toEqual(expect.arrayContaining(both));
  });

  it("stays on whole hours over the night that has twenty-five", () => {
    const found = timeTicks({ from: at("2026-10-24T18:00"), to: at("2026-10-25T18:00") }, 500);
    expect(found.map((tick) => tick.label)).toEqual(["18:00", "25 Oct", "06:00", "12:00", "18:00"]);
  });

  it("ends even where the night has twenty-three hours", () => {
    const found = timeTicks({ from: at("2026-03-28T22:00"), to: at("2026-03-29T08:00") }, 2000);
    expect(found.length).toBeLessThan(25);
    expect(new Set(found.map((tick) => tick.at)).size).toBe(found.length);
  });

  it("has no ticks where there is no room", () => {
    expect(timeTicks({ from: 0, to: 100 }, 0)).toEqual([]);
    expect(timeTicks({ from: 100, to: 100 }, 500)).toEqual([]);
  });

  it("takes steps that a clock has", () => {
    expect([timeStep(300, 10), timeStep(3600, 7), timeStep(86400, 9), timeStep(90 * 86400, 8)]).toEqual([
      30, 600, 10800, 14 * 86400,
    ]);
  });
});

describe("an axis of numbers", () => {
  it("has bounds that are round and hold all values", () => {
    expect(niceBounds(0.13, 2.31)).toEqual({ min: 0, max: 3, step: 1 });
  });

  it("keeps the bounds that are given", () => {
    expect(niceBounds(0.91, 0.97, { min: 0, max: 1 })).toMatchObject({ min: 0, max: 1 });
  });

  it("makes room about a single value", () => {
    const { min, max } = niceBounds(5, 5);
    expect(min).toBeLessThan(5);
    expect(max).toBeGreaterThan(5);
  });

  it("of nothing is still an axis", () => {
    expect(niceBounds(Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY)).toMatchObject({ min: 0, max: 1 });
  });

  it("of counts has whole steps", () => {
    expect(niceBounds(1, 2, { min: 0, whole: true }).step).toBe(1);
  });

  it("steps by 1, 2 or 5", () => {
    expect([niceStep(10, 5), niceStep(9, 2), niceStep(0.3, 4), niceStep(0, 4)]).toEqual([2, 5, 0.1, 1]);
  });
});

describe("a number in few characters", () => {
  it.each([
    [0, "0"], [1, "1"], [0.04123, "0.0412"], [1234, "1.23k"], [999.96, "1k"], [12_345_678, "12.3M"], [3e-7, "3e-7"],
    [-2500, "-2.5k"], [12.5, "12.5"],
  ])("%d is %s", (value, text) => {
    expect(compact(value)).toBe(text);
  });
});

describe("an axis of powers of ten", () => {
  it("is for values of which most would lie in one pixel", () => {
    expect(spansPowers([1.5e20, 3e8, 40, 22, 20, 19, null])).toBe(true);
    expect(spansPowers([2.3, 1.1, 0.4, 0.31])).toBe(false);
    expect(spansPowers([1e20, 3, 0, 2])).toBe(false); // nought has no place on it
    expect(spansPowers([])).toBe(false);
  });

  it("has whole powers as its bounds, and few marks", () => {
    expect(powerBounds(19, 1.5e20)).toEqual([10, 1e21]);
    expect(powerBounds(5, 5)).toEqual([1, 10]);
    expect(powerTicks(10, 1e21)).toEqual([10, 1e5, 1e9, 1e13, 1e17, 1e21]);
    expect(powerTicks(1, 100)).toEqual([1, 10, 100]);
  });
});
