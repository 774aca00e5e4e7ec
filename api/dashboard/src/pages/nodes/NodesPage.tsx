/** The nodes: what they hold, how they are. A node's details and the question before a drain have addresses. */

import { useQuery } from "@tanstack/react-query";
import { Server, ServerOff } from "lucide-react";
import { useNavigate, useParams, useSearchParams } from "react-router";

import { nodesQuery } from "../../api/nodes";
import { poolsQuery } from "../../api/pools";
import { useIsAdmin } from "../../api/session";
import type { Node } from "../../api/types";
import { byNumber } from "../../charts/lanes";
import { EmptyState } from "../../components/EmptyState";
import { percent, plural } from "../../components/format";
import { PageHead } from "../../components/Page";
import { ProblemNote } from "../../components/ProblemNote";
import { QueryFilter } from "../../components/QueryFilter";
import { Skeleton } from "../../components/Skeleton";
import { ForbiddenPage } from "../problem/ForbiddenPage";
import { NodeCard } from "./NodeCard";
import { NodeDrawer } from "./NodeDrawer";
import styles from "./Nodes.module.css";
import { isVerb, VerbDialog } from "./NodeVerbs";
import { heldSlots, meanUse } from "./occupancy";
import { PoolsPanel } from "./PoolsPanel";

/** Leases grow older between the stream's events; this is how often they are asked for. */
const LEASES_MS = 5_000;

export function NodesPage() {
  const { name, verb } = useParams();
  const admin = useIsAdmin();
  const navigate = useNavigate();
  const [search] = useSearchParams();
  const { data, error, refetch } = useQuery({ ...nodesQuery, refetchInterval: LEASES_MS });
  const pools = useQuery(poolsQuery).data?.pools ?? [];
  if (isVerb(verb) && !admin) return <ForbiddenPage />;
  const asked = data?.find((node) => node.name === name);
  const close = (): void => void navigate("/nodes");
  const words = (search.get("q") ?? "").toLowerCase();
  const shown = [...(data ?? [])]
    .filter((node) => words === "" || [node.name, node.host, node.health].some((each) => each.toLowerCase().includes(words)))
    .sort((one, other) => byNumber(one.name, other.name));
  return (
    <>
      <PageHead title="Nodes" name={name ?? "Nodes"} sub={data && data.length > 0 ? <Summary nodes={data} /> : "The machines that offer slots"}>
        {data && data.length > 3 && <QueryFilter label="Filter nodes by name, address or health" placeholder="Name, address or health" />}
      </PageHead>
      <PoolsPanel pools={pools} />
      {error ? (
        <ProblemNote error={error} onRetry={() => void refetch()} />
      ) : !data ? (
        <Skeleton lines={5} height={40} />
      ) : data.length === 0 ? (
        <EmptyState icon={Server} title="No node has joined yet" command={`edt agent --api ${location.origin} --token "$(cat EDT_HOME/join-token)"`}>
          Run this on each machine whose slots are to be used. It appears here within seconds.
        </EmptyState>
      ) : shown.length === 0 ? (
        <EmptyState icon={ServerOff} title="No node matches">Clear the filter to see all {data.length}.</EmptyState>
      ) : (
        <ul className={styles.cards} aria-label="Nodes">
          {shown.map((node) => <NodeCard key={node.name} node={node} />)}
        </ul>
      )}
      {data && name !== undefined && !asked && <p role="alert" className={styles.unknown}>No node is called {name}.</p>}
      {asked && (isVerb(verb) ? <VerbDialog key={verb} node={asked} verb={verb} /> : <NodeDrawer node={asked} onClose={close} />)}
    </>
  );
}

function Summary({ nodes }: { readonly nodes: readonly Node[] }) {
  const up = nodes.filter((node) => node.health === "up").length;
  const alive = nodes.filter((node) => node.health !== "lost");
  const slots = alive.reduce((sum, node) => sum + node.slots.length, 0);
  const held = alive.reduce((sum, node) => sum + heldSlots(node), 0);
  const use = meanUse(alive.flatMap((node) => node.slots));
  return (
    <span className="num">
      {up} of {plural(nodes.length, "node")} up · {held} of {plural(slots, "slot")} held
      {use === null ? "" : ` · ${percent(use)} busy`}
    </span>
  );
}
