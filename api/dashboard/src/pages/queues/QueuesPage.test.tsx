/** What the page of queues shows, and to whom it offers what. */

import { describe, expect, it } from "vitest";

import { keys } from "../../api/keys";
import type { Me, Queue, Queues } from "../../api/types";
import { queue, user, waiting } from "../../testing/answers";
import { shownTo } from "../../testing/shown";
import { QueuesPage } from "./QueuesPage";

function shown(queues: readonly Queue[], role: Me["role"] = "admin", address = "/queues"): string {
  const data: Queues = { at: 1000, slots: 8, used: 3, queues: [...queues] };
  return shownTo(role, <QueuesPage />, { address, path: "/queues/*", known: [[keys.queues, data]] });
}

const TREE = [
  queue("", { used: 3, entitled: 8, running: 2, waiting: 501 }),
  queue("/a", { used: 3, entitled: 2, quota: 2, limit: 6, waiting: 500, users: [user("ana", { held: 3 })], waiting_jobs: [waiting("edt-7", 1, { reason: "its queue has all of its 6 slots" })] }),
  queue("/b", { waiting: 1, waiting_jobs: [waiting("edt-8", 2)] }),
];

describe("the page of queues", () => {
  it("shows each queue with what it holds and is entitled to, and who waits and why, with links", () => {
    const page = shown(TREE);
    expect(page).toMatch(/aria-label="\/a"[^]*<strong>3<\/strong> \/ 2[^]*data-part="over"/);
    expect(page).toMatch(/href="\/jobs\/edt-7"[^]*Entitlement is used up[^]*its queue has all of its 6 slots/);
    expect(page).toContain("499 further jobs not listed here");
  });

  it("shows, of one queue, its own users and waiting jobs alone", () => {
    const page = shown(TREE, "user", "/queues/b");
    expect(page).toMatch(/Who waits \(1\)[^]*edt-8/);
    expect(page).not.toContain("edt-7");
    expect(page).toContain("Nobody has jobs or usage here");
  });

  it("offers changes to administrators, and refuses them to others", () => {
    expect(shown(TREE, "admin", "/queues/a")).toMatch(/Add queue[^]*Change \/a[^]*Remove \/a/);
    expect(shown(TREE, "user", "/queues/a")).not.toMatch(/Add queue|Change \/a|Remove \/a/);
    expect(shown(TREE, "user", "/queues/a?do=remove")).toContain("403");
    expect(shown(TREE, "admin", "/queues/a?do=change")).toMatch(/Change \/a[^]*value="2"[^]*value="6"/);
  });

  it("tells how to make a queue where there is none but the root", () => {
    expect(shown([queue("")])).toMatch(/There is no queue but the root[^]*edt queue set \/research/);
    expect(shown(TREE)).not.toContain("There is no queue but the root");
  });

  it("tells to which queue jobs of an unknown one belong", () => {
    expect(shown(TREE, "user", "/queues/a/x")).toMatch(/There is no queue[^]*\/a\/x[^]*Jobs that name it belong to[^]*href="\/queues\/a"/);
  });
});
