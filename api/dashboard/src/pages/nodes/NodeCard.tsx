/** One node: its health, its slots, its last hour, and what an admin can do with it. */

import { useQuery } from "@tanstack/react-query";
import { Box, Boxes, Cpu, Gpu } from "lucide-react";
import { Link } from "react-router";

import type { Node } from "../../api/types";
import { Sparkline } from "../../charts/Sparkline";
import { percent, plural } from "../../components/format";
import { Troubles } from "./GpuTable";
import { devices, isGpu } from "./gpus";
import { HealthBadge, Lease } from "./Health";
import { NodeVerbs } from "./NodeVerbs";
import styles from "./Nodes.module.css";
import { SlotTile } from "./SlotTile";
import { heldSlots, holders, meanUse } from "./occupancy";
import { usageQuery } from "./usage";

const HOUR = 3600;

export function NodeCard({ node }: { readonly node: Node }) {
  const held = heldSlots(node);
  return (
    <li className={styles.card} data-health={node.health} data-node={node.name}>
      <header className={styles.cardHead}>
        <h2>
          <Link to={`/nodes/${encodeURIComponent(node.name)}`}>{node.name}</Link>
        </h2>
        <HealthBadge node={node} />
        <Lease node={node} />
        <span className={styles.stretch} />
        <NodeVerbs node={node} />
      </header>
      <div className={styles.about}>
        <span title="Address">{node.host}</span>
        <span><Cpu size={13} aria-hidden /> {plural(node.cores, "core")}</span>
        <span title="In what its jobs run"><Box size={13} aria-hidden /> {node.launcher}</span>
        {node.pool !== null && (
          <span title="The pool that it comes from">
            <Boxes size={13} aria-hidden /> {node.pool}{node.only_for !== null && `, for ${node.only_for} alone`}
          </span>
        )}
        <span className="num">{held} of {plural(node.slots.length, "slot")} held</span>
        {node.slots.some(isGpu) && <span title="Its GPUs"><Gpu size={13} aria-hidden /> {devices(node.slots).join(", ")}</span>}
        <span className={styles.stretch} />
        <LastHour node={node} />
      </div>
      {node.health === "draining" && <Draining node={node} />}
      <Troubles node={node} />
      <ul className={styles.slots} aria-label={`Slots of ${node.name}`} data-few={node.slots.length <= 8}>
        {node.slots.map((slot) => <SlotTile key={slot.slot} slot={slot} />)}
      </ul>
    </li>
  );
}

/** Mean utilisation of the last hour, as a line and its last value. */
function LastHour({ node }: { readonly node: Node }) {
  const { data } = useQuery(usageQuery(node.name, HOUR, 60));
  const now = meanUse(node.slots);
  const last = now ?? data?.mean.at(-1) ?? null;
  if (!data || data.x.length < 2) return last === null ? null : <span className="num">{percent(last)} busy</span>;
  const to = Date.now() / 1000;
  return (
    <span className={styles.hour} title="Mean utilisation of its slots over the last hour">
      <Sparkline
        label={`Utilisation of ${node.name} over the last hour${last === null ? "" : `, now ${percent(last)}`}`}
        x={data.x} values={data.mean} from={to - HOUR} to={to} max={1} width={108} height={24}
      />
      <span className="num">{last === null ? "–" : percent(last)}</span>
    </span>
  );
}

function Draining({ node }: { readonly node: Node }) {
  const on = holders(node);
  const slots = heldSlots(node);
  return (
    <p className={styles.draining} role="status" data-empty={slots === 0}>
      {node.leaving_why !== null && `It leaves: ${node.leaving_why}. `}
      {slots === 0
        ? node.pool === null ? "Empty: it can be switched off." : "Empty."
        : `${plural(slots, "slot")} still held by ${plural(on.length, "job")}: ${on.map((each) => each.execId).join(", ")}. ${on.some((each) => each.gang) ? "Elastic jobs leave at the end of a step, gangs as a whole." : "Each leaves at the end of its step."}`}
    </p>
  );
}
