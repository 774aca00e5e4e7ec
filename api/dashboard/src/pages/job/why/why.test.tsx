/** Why a job waits, and why it has as many slots as it has, part by part. */

import { describe, expect, it } from "vitest";

import { keys } from "../../../api/keys";
import type { Explained, Me } from "../../../api/types";
import { expected, explained, holds, suggestion, waits } from "../../../testing/answers";
import { event, job } from "../../../testing/jobs";
import { shownTo } from "../../../testing/shown";
import { Explanation } from "./WhyPanel";
import { errorWords, plansWords, reasons, ruleWord, startWords, verdictCounts, worthBar } from "./words";

const EVENTS = [
  event(1, "waiting", { message: "nothing is free", data: { blocking: "capacity" } }),
  event(2, "checkpointed"),
  event(3, "waiting", { message: "ana has all that is due to her", data: { blocking: "quota" } }),
];

function shown(told: Partial<Explained>, role: Me["role"] = "user"): string {
  return shownTo(role, <Explanation job={job(1, { slots: 0 })} told={explained(told)} />, {
    known: [[keys.jobList("edt-1", "events"), { items: EVENTS, cut: false }]],
  });
}

describe("a job that waits", () => {
  it("has its place, its rule, what it needs, and when it is expected with the errors of such estimates", () => {
    const error = { jobs: 40, median_seconds: 60, p90_seconds: 600 };
    const page = shown({ waits: waits(), expected: expected({ start: 4600, error, sentence: "Its start is expected in about an hour." }) });
    expect(page).toMatch(/Place[^]*2[^]*of 5 that wait[^]*Other jobs hold the slots[^]*in about 1 h[^]*half of 40 past estimates off by at most 1 min/);
  });

  it("has what would start it, with the command and a button for whoever may, and else without", () => {
    const page = shown({ waits: waits(), changes: [suggestion(), suggestion({ sentence: "there is a further node", command: "" })] });
    expect(page).toMatch(/If edt-9 is stopped[^]*once slots are vacated[^]*edt stop edt-9[^]*Apply: edt-9 is stopped/);
    expect(page).toContain("If there is a further node");
    expect(page).not.toContain("Apply: there is a further node");
  });

  it("is told that nothing single would start it", () => {
    expect(shown({ waits: waits() })).toContain("No single change that was tried would start it now");
  });

  it("has what blocks it with links, and counts jobs that may not be seen", () => {
    const by = { job: "edt-9", user: "bob", queue: "/a", priority: 2, slots: 3, nodes: ["n1"], sentence: "holds 3 slots" };
    const page = shown({ waits: waits({ by: [by], hidden: { jobs: 2, slots: 5 } }) });
    expect(page).toMatch(/What blocks it[^]*href="\/jobs\/edt-9"[^]*href="\/queues\/a"[^]*holds 3 slots[^]*2 further jobs of other users hold 5 slots/);
  });

  it("has a verdict on each node, and how many are not listed", () => {
    const node = { node: "n1", verdict: "full" as const, sentence: "edt-9 holds it", slots: 4, free: 0, jobs: ["edt-9"], hidden: { jobs: 0, slots: 0 } };
    const page = shown({ waits: waits(), nodes: { items: [node], counts: { full: 300, lost: 1 } } });
    expect(page).toMatch(/300 full · 1 lost[^]*href="\/nodes\/n1"[^]*Full[^]*0 of 4[^]*edt-9 holds it[^]*300 further nodes not listed here/);
  });

  it("has what its user may have, queue by queue up to the root", () => {
    const queues = ["/a", ""].map((queue) => ({ queue, policy: "fifo" as const, quota: 2, weight: 1, limit: null, held: 1, waiting: 3 }));
    const page = shown({ waits: waits(), entitlement: { user: "ana", queue: "/a", entitled: 1, held: 1, jobs: 2, queues } });
    expect(page).toMatch(/ana is entitled to 1 slot in[^]*\/queues\/a[^]*holds 1 there with 2 jobs that[^]*are not over[^]*root[^]*fifo/);
  });

  it("has its reasons so far, the newest first, with how long each held", () => {
    expect(shown({ waits: waits() })).toMatch(/Reasons so far[^]*ana has all that is due to her[^]*so far[^]*nothing is free[^]*2 s/);
  });
});

describe("a job that runs", () => {
  it("has its share, what its next slot is worth beside the price, and who holds slots that it could use", () => {
    const taker = { job: "edt-9", user: "bob", queue: "", priority: 1, slots: 4, nodes: ["n1"], sentence: "makes 3 times as much of them" };
    const page = shown({ phase: "running", holds: holds({ takers: [taker] }) });
    expect(page).toMatch(/Share[^]*2[^]*1 to 8 allowed[^]*Next size[^]*4[^]*Others make more of the slots\./);
    expect(page).toMatch(/role="img" aria-label="Its next slot is worth 0\.5 times the price of a slot"[^]*edt-9[^]*makes 3 times as much/);
    expect(page).not.toContain("Reasons so far");
  });

  it("has no bar where slots have no price", () => {
    expect(shown({ phase: "running", holds: holds({ price: 0, gain: 0 }) })).not.toContain('role="img"');
  });
});

it("a job that ends is told in one sentence", () => {
  expect(shown({ phase: "ending", sentence: "edt-1 is ending." })).toContain("edt-1 is ending.");
});

it("reasons end when the next one comes or the job gets slots, and the last one may hold still", () => {
  expect(reasons(EVENTS).map(({ rule, until }) => [rule, until])).toEqual([["quota", null], ["capacity", 1003]]);
  expect(reasons([...EVENTS, event(4, "resize")])[0]?.until).toBe(1004);
});

it("codes have words, and those of a newer release are shown as they came", () => {
  expect([ruleWord("dependency"), ruleWord(""), ruleWord("weather")]).toEqual(["Another job first", "Starts now", "weather"]);
  expect(verdictCounts({ lost: 1, free: 0, full: 3 })).toBe("3 full · 1 lost");
  expect([plansWords(1), plansWords(2)]).toEqual(["at once", "once slots are vacated"]);
});

it("a start is told from now, or how far the forecast goes", () => {
  expect(startWords(expected({ start: 1001 }), 1000)).toBe("now");
  expect(startWords(expected(), 1000)).toBe("not within 14 d");
  expect(errorWords(null)).toBe("no past estimates yet");
});

it("the bar of a worth leaves room beyond the larger of worth and price", () => {
  expect(worthBar(0.5)).toEqual({ worth: 40, price: 80 });
  expect(worthBar(2)).toEqual({ worth: 80, price: 40 });
});
