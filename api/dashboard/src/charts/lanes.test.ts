import { describe, expect, it } from "vitest";
import { BarStore } from "./bars";
import { groupsBetween, laneAt, laneKey, layOut } from "./lanes";
import { markAt, placeMarks, type FailureFact, type ResizeFact } from "./marks";

const node = (name: string, slots: number) => ({
  name, slots: Array.from({ length: slots }, (_, slot) => ({ slot: String(slot) })),
});

describe("the rows", () => {
  it("are slots below their node, ordered as people count", () => {
    const layout = layOut([node("gpu-10", 2), node("gpu-2", 12)]);
    expect(layout.groups.map((group) => group.node)).toEqual(["gpu-2", "gpu-10"]);
    expect(layout.groups[0]?.lanes.map((lane) => lane.slot).slice(1, 4)).toEqual(["1", "2", "3"]);
    expect(layout.groups[0]?.lanes.at(-1)?.slot).toBe("11");
  });

  it("lie below each other without overlap", () => {
    const layout = layOut([node("a", 3), node("b", 1), node("c", 0)]);
    const lanes = [...layout.lanes.values()];
    for (const [at, lane] of lanes.slice(1).entries()) {
      const above = lanes[at] as typeof lane;
      expect(lane.top).toBeGreaterThanOrEqual(above.top + above.height);
    }
    expect(layout.height).toBeGreaterThanOrEqual((lanes.at(-1)?.top ?? 0) + (lanes.at(-1)?.height ?? 0));
  });

  it("are found by their height", () => {
    const layout = layOut([node("a", 2), node("b", 2)]);
    for (const lane of layout.lanes.values()) {
      expect(laneAt(layout, lane.top)?.key).toBe(lane.key);
      expect(laneAt(layout, lane.top + lane.height - 0.1)?.key).toBe(lane.key);
    }
    expect(laneAt(layout, 3)).toBeNull();
    expect(laneAt(layout, layout.height + 3)).toBeNull();
  });

  it("out of sight are left out", () => {
    const layout = layOut([node("a", 10), node("b", 10), node("c", 10)]);
    const [, second] = layout.groups;
    expect(groupsBetween(layout, second?.top ?? 0, 10).map((group) => group.node)).toEqual(["b"]);
  });
});

describe("the marks", () => {
  const layout = layOut([node("a", 4)]);
  const store = new BarStore();
  store.put([0, 1, 2].map((slot) => ({
    allocation: slot, execId: "edt-1", node: "a", slot: String(slot), from: 10, started: 10, to: slot === 2 ? 50 : 95,
  })));
  const range = { from: 0, to: 100 };
  const top = (slot: number): number => layout.lanes.get(laneKey("a", String(slot)))?.top ?? -1;

  const resize = (more: Partial<ResizeFact>): ResizeFact => ({
    number: 1, execId: "edt-1", cause: "room", time: 50, fromSlots: 3, toSlots: 2, pauseSeconds: 0.1, recomputed: 0, detail: "",
    ...more,
  });
  const failure = (more: Partial<FailureFact>): FailureFact => ({
    execId: "edt-1", node: "a", slot: "1", time: 30, kind: "lost", message: "killed", ...more,
  });

  it("of a resize stand on the topmost row that the job held", () => {
    const marks = placeMarks(layout, store, [resize({})], [], range, 1000);
    expect(marks).toMatchObject([{ kind: "resize", x: 500, y: top(0) }]);
  });

  it("of a job's first slot are none: its bar begins there", () => {
    expect(placeMarks(layout, store, [resize({ fromSlots: 0, time: 10 })], [], range, 1000)).toEqual([]);
  });

  it("of a failure stand on the slot where it happened, or on the job's, where nobody knows the slot", () => {
    const where = (fact: FailureFact) => placeMarks(layout, store, [], [fact], range, 1000)[0]?.y ?? null;
    expect(where(failure({}))).toBeGreaterThan(top(1));
    expect(where(failure({}))).toBeLessThan(top(2));
    expect(where(failure({ slot: null, node: null }))).toBeLessThan(top(1));
    expect(where(failure({ slot: null, execId: "edt-9" }))).toBeLessThan(top(0));
    expect(where(failure({ node: "gone", execId: "edt-9" }))).toBeNull();
  });

  it("that would lie on each other are thinned", () => {
    const many = Array.from({ length: 200 }, (_, at) => resize({ time: 20 + at / 10 }));
    expect(placeMarks(layout, store, many, [], range, 1000).length).toBeLessThan(25);
  });

  it("of resizes are left out where the bars are too narrow to tell whose they are, those of failures are not", () => {
    const marks = placeMarks(layout, store, [resize({})], [failure({})], { from: 0, to: 100_000 }, 1000);
    expect(marks.map((mark) => mark.kind)).toEqual(["failure"]);
  });

  it("outside the chart are left out", () => {
    expect(placeMarks(layout, store, [resize({ time: 101 })], [failure({ time: -1 })], range, 1000)).toEqual([]);
  });

  it("are found by the pointer when it is near", () => {
    const marks = placeMarks(layout, store, [resize({})], [failure({})], range, 1000);
    expect(markAt(marks, 503, top(0) + 2)?.kind).toBe("resize");
    expect(markAt(marks, 303, top(1) + 12)?.kind).toBe("failure");
    expect(markAt(marks, 400, top(0))).toBeNull();
  });
});
