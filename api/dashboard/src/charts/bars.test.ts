import { describe, expect, it } from "vitest";
import { barAt, BarStore, pieces, type Bar } from "./bars";
import { laneKey } from "./lanes";

const LANE = laneKey("n1", "0");
let next = 0;

function bar(from: number, to: number | null, more: Partial<Bar> = {}): Bar {
  next++;
  return { allocation: next, execId: "edt-1", node: "n1", slot: "0", from, started: from, to, ...more };
}

function storeOf(...bars: Bar[]): BarStore {
  const store = new BarStore();
  store.put(bars);
  return store;
}

describe("what is known of the slots", () => {
  it("is in order in whatever order it came", () => {
    const store = storeOf(bar(30, null), bar(10, 20), bar(20, 30));
    expect(store.lane(LANE).map((each) => each.from)).toEqual([10, 20, 30]);
    expect(store.earliest).toBe(10);
  });

  it("changes when a slot is given back, and counts no bar twice", () => {
    const open = bar(10, null);
    const store = storeOf(open);
    const before = store.version;
    store.put([{ ...open, to: 55 }]);
    expect(store.size).toBe(1);
    expect(store.lane(LANE)).toEqual([{ ...open, to: 55 }]);
    expect(store.job("edt-1")).toEqual([{ ...open, to: 55 }]);
    expect(store.version).toBeGreaterThan(before);
  });

  it("is listed for a stretch, newest first, with the bars that only touch it", () => {
    const store = storeOf(bar(0, 10), bar(10, 20), bar(20, 30), bar(40, null), bar(15, 25, { slot: "1" }));
    expect(store.between({ from: 12, to: 22 }).map((each) => each.from)).toEqual([20, 15, 10]);
  });
});

describe("a row's pixels", () => {
  const range = { from: 100, to: 200 };

  it("are clipped to the chart, and an open bar ends now", () => {
    const lane = storeOf(bar(50, 120), bar(150, null)).lane(LANE);
    expect(pieces(lane, range, 1000, 180).map(({ x, width }) => [x, width])).toEqual([[0, 200], [500, 300]]);
  });

  it("leave out what lies before and after", () => {
    const lane = storeOf(bar(0, 100), bar(110, 120), bar(200, 300)).lane(LANE);
    expect(pieces(lane, range, 1000, 999)).toHaveLength(1);
  });

  it("are no more than the chart has, however many bars there are", () => {
    const lane = storeOf(...Array.from({ length: 5000 }, (_, at) => bar(100 + at / 50, 100 + (at + 1) / 50))).lane(LANE);
    const found = pieces(lane, range, 400, 999);
    expect(found.length).toBeLessThanOrEqual(450);
    expect(found.reduce((sum, piece) => sum + piece.crowd, 0)).toBe(5000);
    const last = found[found.length - 1];
    expect((last?.x ?? 0) + (last?.width ?? 0)).toBeCloseTo(400);
  });

  it("of a bar that begins in the future of a slow clock do not run backwards", () => {
    const [piece] = pieces(storeOf(bar(190, null)).lane(LANE), range, 1000, 180);
    expect(piece?.width).toBe(0);
  });
});

describe("the pointer", () => {
  const lane = storeOf(bar(0, 10), bar(10, 20), bar(30, 30.1), bar(40, null)).lane(LANE);

  it("finds the bar it is on", () => {
    expect(barAt(lane, 5, 0, 100)?.from).toBe(0);
    expect(barAt(lane, 15, 1, 100)?.from).toBe(10);
    expect(barAt(lane, 70, 0, 100)?.from).toBe(40);
  });

  it("finds a thin bar nearby, and nothing where nothing is", () => {
    expect(barAt(lane, 31, 2, 100)?.from).toBe(30);
    expect(barAt(lane, 25, 2, 100)).toBeNull();
    expect(barAt(lane, 105, 2, 100)).toBeNull();
  });
});
