import { describe, expect, it } from "vitest";

import { laneKey } from "../../charts/lanes";
import { type Happened, type TimelineAnswer, TimelineModel } from "./model";

const nothing: Happened = { allocations: [], resizes: [], failures: [] };

function allocation(number: number, more: Partial<Happened["allocations"][number]> = {}) {
  return {
    allocation: number, exec_id: "edt-1", node: "n1", slot: String(number), decided_at: 100 + number, started_at: null,
    released_at: null, ...more,
  };
}

function timeline(more: Partial<TimelineAnswer> = {}): TimelineAnswer {
  return {
    ...nothing, now: 1000, earliest: 50, nodes: [{ name: "n1", health: "up", seen_at: 999, slots: [] }],
    jobs: { "edt-1": { state: "RUNNING", owner: "ada", app_name: "digits" } }, allocations: [allocation(1)], ...more,
  };
}

const resize = {
  number: 1, exec_id: "edt-1", cause: "room", time: 200, from_slots: 2, to_slots: 1, pause_seconds: null,
  recomputed: null, detail: null,
};

describe("what the timeline knows", () => {
  it("is the timeline it fetched", () => {
    const model = new TimelineModel();
    model.load(timeline({ resizes: [resize] }), 0, 0);
    expect(model.bars.lane(laneKey("n1", "1"))).toMatchObject([{ execId: "edt-1", from: 101, to: null }]);
    expect(model.jobs.get("edt-1")?.owner).toBe("ada");
    expect(model.earliest).toBe(50);
    expect(model.resizes).toHaveLength(1);
  });

  it("goes by the API's clock", () => {
    const model = new TimelineModel();
    model.load(timeline({ now: 1000 }), 400_000, 402_000);
    expect(model.now(401_000)).toBe(1000);
    expect(model.now(411_000)).toBe(1010);
  });

  it("changes with each event, and says so", () => {
    const model = new TimelineModel();
    model.load(timeline(), 0, 0);
    let changes = 0;
    model.watch(() => changes++);
    model.apply({ ...nothing, allocations: [allocation(1, { released_at: 300 })], resizes: [resize] }, 1);
    model.apply({ ...nothing, resizes: [{ ...resize, pause_seconds: 0.2 }] }, 2);
    expect(model.bars.job("edt-1")[0]?.to).toBe(300);
    expect(model.resizes).toMatchObject([{ pauseSeconds: 0.2 }]);
    expect(changes).toBe(2);
  });

  it("loses nothing that came while an answer was on its way", () => {
    const model = new TimelineModel();
    model.apply({ ...nothing, allocations: [allocation(2)] }, 500);
    model.load(timeline(), 400, 600);
    expect(model.bars.size).toBe(2);
    model.load(timeline(), 700, 800);
    expect(model.bars.size, "the newer answer no longer holds it").toBe(1);
  });

  it("keeps the bars of a job that was removed, and does not lead to its page", () => {
    const model = new TimelineModel();
    model.load(timeline(), 0, 0);
    expect(model.closed("edt-1")).toBeNull();
    model.applyJobs({ items: [], removed: ["edt-1"] }, 1);
    expect(model.bars.size).toBe(1);
    expect(model.closed("edt-1")).toBe("Removed job");
  });

  it("does not lead to the page of another user's job", () => {
    const model = new TimelineModel();
    model.load(timeline({ jobs: { "edt-1": { state: "RUNNING", owner: null, app_name: null } } }), 0, 0);
    expect(model.closed("edt-1")).toBe("Another user’s job");
  });

  it("takes new nodes, and changes of those it knows", () => {
    const model = new TimelineModel();
    model.load(timeline(), 0, 0);
    const nodes = [{ name: "n1", health: "draining", seen_at: 5, slots: [] }, { name: "n2", health: "up", seen_at: 5, slots: [] }];
    model.applyNodes({ items: nodes, removed: [] }, 1);
    expect(model.nodes.map((node) => [node.name, node.health])).toEqual([["n1", "draining"], ["n2", "up"]]);
  });

  it("takes the row of a removed node away, but for one whose bars it shows", () => {
    const model = new TimelineModel();
    model.load(timeline(), 0, 0);
    model.applyNodes({ items: [{ name: "n2", health: "lost", seen_at: 5, slots: [] }], removed: [] }, 1);
    model.applyNodes({ items: [], removed: ["n1", "n2"] }, 2);
    expect(model.nodes.map((node) => node.name)).toEqual(["n1"]);
  });
});
