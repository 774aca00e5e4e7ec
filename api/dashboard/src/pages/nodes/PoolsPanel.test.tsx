/** What the panel of pools shows. */

import { describe, expect, it } from "vitest";

import type { AskedNode, Pool } from "../../api/types";
import { shownTo } from "../../testing/shown";
import { PoolsPanel } from "./PoolsPanel";

function asked(node: string, values: Partial<AskedNode> = {}): AskedNode {
  return {
    node, job: null, state: "pending", reason: "", first: true, group_size: 0, asked_at: 900, waits_seconds: 100,
    granted_at: null, give_up_at: null, give_up_why: null, ...values,
  };
}

function pool(name: string, values: Partial<Pool> = {}): Pool {
  return {
    name, kind: "kubernetes", slots: 2, max_nodes: 4, max_set: false, min_nodes: 0, min_set: false, patience_seconds: 120,
    patience_set: false, idle_seconds: 60, per_job: true, containers: true, device: "gpu", model: "", note: "", trouble: null,
    registered_at: 1, seen_at: 999, silent_seconds: 1, there: 0, asked: 0, waiting: [], more: 0, ...values,
  };
}

function shown(pools: readonly Pool[]): string {
  return shownTo("user", <PoolsPanel pools={pools} />, { address: "/nodes", path: "/nodes", known: [] });
}

describe("pools", () => {
  it("are shown with the nodes that are waited for, and why they do not come", () => {
    const page = shown([pool("gpu", { there: 3, asked: 1, waiting: [asked("gpu-4", { job: "edt-7", reason: "0/3 nodes are available" })] })]);
    expect(page).toMatch(/data-pool="gpu" data-trouble="false"[^]*kubernetes[^]*one job each/);
    expect(page).toMatch(/data-node="gpu-4"[^]*href="\/jobs\/edt-7"[^]*pending[^]*0\/3 nodes are available/);
  });

  it("tell that a cluster manager does not answer, and that a provisioner is silent", () => {
    expect(shown([pool("gpu", { trouble: "connection refused" })])).toMatch(/data-trouble="true"[^]*connection refused/);
    expect(shown([pool("gpu", { silent_seconds: 300 })])).toMatch(/data-trouble="true"/);
  });

  it("tell why a node that is not wanted leaves, and how many are not listed", () => {
    const leaving = asked("gpu-2", { granted_at: 950, give_up_at: 990, give_up_why: "edt-7 is over" });
    expect(shown([pool("gpu", { waiting: [leaving], more: 1 })])).toMatch(/leaving[^]*edt-7 is over[^]*1 further node is waited for/);
  });

  it("are not mentioned where there is none", () => {
    expect(shown([])).not.toContain("Pools");
  });
});
