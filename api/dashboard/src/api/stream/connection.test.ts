/** How the line to the API stands, as the badge tells it. */

import { expect, it } from "vitest";

import { atFirst, broken, checked, heard } from "./connection";

it("is live as soon as something is heard", () => {
  expect(heard(atFirst(0), 5)).toMatchObject({ phase: "live", heardAt: 5 });
});

it("stays live while a beat comes at least every 15 seconds", () => {
  const line = heard(atFirst(0), 1_000);
  expect(checked(line, 15_999)).toBe(line);
});

it("is stale after 15 seconds of silence, and says since when", () => {
  expect(checked(heard(atFirst(0), 1_000), 16_000)).toMatchObject({ phase: "stale", heardAt: 1_000 });
});

it("reconnects where it broke, and is stale 15 seconds after it was last heard", () => {
  const line = broken(heard(atFirst(0), 1_000));
  expect(line.phase).toBe("reconnecting");
  expect(checked(line, 10_000).phase).toBe("reconnecting");
  expect(checked(line, 16_000).phase).toBe("stale");
});

it("does not hide behind another attempt that it is stale", () => {
  expect(broken(checked(heard(atFirst(0), 1_000), 16_000)).phase).toBe("stale");
});

it("is stale where nothing was ever heard", () => {
  expect(checked(atFirst(0), 15_000)).toMatchObject({ phase: "stale", heardAt: null, since: 0 });
});
