import { describe, expect, it } from "vitest";

import type { NodeUsage } from "../../api/types";
import { usageSeries, heldSlots, holders, meanUse, whatHappens } from "./occupancy";

function slot(number: number, execId: string | null, leaving = false) {
  return { slot: String(number), device: "cpu", label: "", exec_id: execId, busy: execId !== null, leaving } as never;
}

const node = { name: "n1", slots: [slot(0, "edt-2"), slot(1, "edt-10", true), slot(2, "edt-10"), slot(3, null)] };

describe("who is on a node", () => {
  it("are its jobs with their slots, and how many are being given back", () => {
    expect(holders(node)).toEqual([
      { execId: "edt-10", slots: 2, leaving: 1, gang: false }, { execId: "edt-2", slots: 1, leaving: 0, gang: false },
    ]);
    expect(heldSlots(node)).toBe(3);
  });
});

describe("how busy it is", () => {
  it("is the mean of what is known", () => {
    expect(meanUse([{ utilisation: 0.5 }, { utilisation: null }, { utilisation: 1 }])).toBe(0.75);
    expect(meanUse([{ utilisation: null }, {}])).toBeNull();
  });
});

describe("the curve of a node's use", () => {
  const series = (time: number[], utilisation: number[]) => ({
    time, utilisation, memory_bytes: time.map(() => 7), power_watts: time.map(() => null), temperature_c: time.map(() => null),
  });
  const usage = (slots: NodeUsage["slots"]): NodeUsage => ({ now: 0, since: 0, until: 0, slots });

  it("has all slots on one row of times", () => {
    const { x, slots, mean } = usageSeries(usage({ "10": series([15, 30], [1, 1]), "2": series([0, 15, 30], [0, 0.5, 1]) }));
    expect(x).toEqual([0, 15, 30]);
    expect(slots.map((each) => each.slot)).toEqual(["2", "10"]);
    expect(slots[1]?.use).toEqual([null, 1, 1]);
    expect(mean).toEqual([0, 0.75, 1]);
  });

  it("is broken where no sample came", () => {
    const { x, mean } = usageSeries(usage({ "0": series([0, 15, 30, 300, 315], [1, 1, 1, 1, 1]) }));
    expect(x).toEqual([0, 15, 30, 45, 300, 315]);
    expect(mean).toEqual([1, 1, 1, null, 1, 1]);
  });

  it("of nothing is empty", () => {
    expect(usageSeries(usage({}))).toEqual({ x: [], slots: [], mean: [] });
  });
});

describe("what the dialog tells an admin", () => {
  it("before a drain is how many jobs give back how many slots", () => {
    expect(whatHappens("drain", node)).toContain("2 jobs give back 3 slots");
    expect(whatHappens("drain", { name: "n1", slots: [slot(0, null)] })).toContain("switched off at once");
  });

  it("before a drain is that a gang gives back all of its slots, wherever they are", () => {
    const gang = { ...(slot(0, "edt-7") as object), kind: "gang" } as never;
    expect(whatHappens("drain", { name: "n1", slots: [gang] })).toMatch(/^edt-7 is a gang, gives back all slots[^]*SIGTERM/);
    expect(whatHappens("drain", { name: "n1", slots: [gang, slot(1, "edt-2")] })).toMatch(/edt-7 is a gang[^]*2 jobs give back/);
  });

  it("before a cordon is that jobs go on", () => {
    expect(whatHappens("cordon", node)).toContain("go on with the slots they hold");
  });
});
