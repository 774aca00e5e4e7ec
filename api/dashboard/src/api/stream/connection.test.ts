/** The state of the connection to the API, as the badge shows it. */

import { expect, it } from "vitest";

import { atFirst, broken, checked, received } from "./connection";

it("is live as soon as something comes", () => {
  expect(received(atFirst(0), 5)).toMatchObject({ phase: "live", receivedAt: 5 });
});

it("stays live while a beat comes at least every 15 seconds", () => {
  const line = received(atFirst(0), 1_000);
  expect(checked(line, 15_999)).toBe(line);
});

it("is stale after 15 seconds of silence, and says since when", () => {
  expect(checked(received(atFirst(0), 1_000), 16_000)).toMatchObject({ phase: "stale", receivedAt: 1_000 });
});

it("reconnects where it broke, and is stale 15 seconds after something last came", () => {
  const line = broken(received(atFirst(0), 1_000));
  expect(line.phase).toBe("reconnecting");
  expect(checked(line, 10_000).phase).toBe("reconnecting");
  expect(checked(line, 16_000).phase).toBe("stale");
});

it("does not hide behind another attempt that it is stale", () => {
  expect(broken(checked(received(atFirst(0), 1_000), 16_000)).phase).toBe("stale");
});

it("is stale where nothing ever came", () => {
  expect(checked(atFirst(0), 15_000)).toMatchObject({ phase: "stale", receivedAt: null, since: 0 });
});
