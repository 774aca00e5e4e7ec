/** Numbers and times as people read them. */

import { expect, it } from "vitest";

import { ago, bytes, duration, number, percent, percentDone, plural, shortDuration, utc } from "./format";

it("writes a duration in the two units that matter", () => {
  expect([0, 0.0213, 4.26, 42, 125, 11_520, 187_200].map(duration)).toEqual([
    "0 s",
    "21 ms",
    "4.3 s",
    "42 s",
    "2 min 05 s",
    "3 h 12 min",
    "2 d 4 h",
  ]);
});

it("never writes 60 of a unit", () => {
  expect([59.7, 3599.6, 86_399].map(duration)).toEqual(["1 min 00 s", "1 h 00 min", "1 d 0 h"]);
});

it("writes no negative duration, since clocks differ", () => {
  expect(duration(-3)).toBe("0 s");
  expect(ago(100, 99)).toBe("just now");
});

it("writes a short duration in one unit", () => {
  expect([12, 300, 5400, 129_600].map(shortDuration)).toEqual(["12 s", "5 min", "1.5 h", "1.5 d"]);
});

it("keeps four digits of a number, and its size readable", () => {
  expect([0, 0.0561312, 12.3456, 720.4, 1234.6, 45_600, 3_200_000, 0.00001234, -0.5].map(number)).toEqual([
    "0",
    "0.05613",
    "12.35",
    "720.4",
    "1,235",
    "45.6k",
    "3.2M",
    "1.23e-5",
    "-0.5",
  ]);
});

it("says what is no number", () => {
  expect(number(Number.NaN)).toBe("NaN");
});

it("writes bytes by 1024", () => {
  expect([0, 1023, 1536, 3 * 1024 ** 3, 5 * 1024 ** 4].map(bytes)).toEqual(["0 B", "1023 B", "1.5 KiB", "3 GiB", "5 TiB"]);
});

it("writes shares, plurals and UTC", () => {
  expect(percent(0.337)).toBe("34 %");
  expect(percentDone(46 / 69)).toBe("66 %");
  expect([0.29, 0.57, 0.9999, 1].map(percentDone)).toEqual(["29 %", "57 %", "99 %", "100 %"]);
  expect([plural(1, "slot"), plural(2000, "slot"), plural(0, "branch", "branches")]).toEqual(["1 slot", "2,000 slots", "0 branches"]);
  expect(utc(1_795_287_800.6)).toBe("2026-11-21 19:03:20 UTC");
});
