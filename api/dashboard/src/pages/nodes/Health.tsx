/** A node's health in a word, and how old its lease is. */

import { CircleCheck, CirclePause, CircleX, HeartPulse, type LucideIcon, LogOut, TriangleAlert } from "lucide-react";

import { useNow } from "../../api/stream/live";
import type { Node } from "../../api/types";
import { Badge, type Tone } from "../../components/Badge";
import { ago, shortDuration } from "../../components/format";
import styles from "./Nodes.module.css";
import { AGEING_SECONDS, heldSlots } from "./occupancy";

const LOOKS: Readonly<Record<string, { word: string; tone: Tone; icon: LucideIcon }>> = {
  up: { word: "Up", tone: "good", icon: CircleCheck },
  cordoned: { word: "Cordoned", tone: "calm", icon: CirclePause },
  draining: { word: "Draining", tone: "warn", icon: LogOut },
  lost: { word: "Lost", tone: "bad", icon: CircleX },
};

export function HealthBadge({ node }: { readonly node: Node }) {
  const look = LOOKS[node.health] ?? { word: node.health, tone: "calm" as const, icon: TriangleAlert };
  const drained = node.health === "draining" && heldSlots(node) === 0;
  const now = useNow(10_000);
  const since = node.health_since ? `since ${ago(node.health_since, now)}` : undefined;
  return (
    <Badge tone={drained ? "calm" : look.tone} icon={look.icon} {...(since && { title: since })}>
      {drained ? "Drained" : look.word}
    </Badge>
  );
}

/** When this picture of the node came in, by our clock: from then on its age grows here. */
const arrived = new WeakMap<Node, number>();

export function leaseAge(node: Node, now: number): number {
  let at = arrived.get(node);
  if (at === undefined) arrived.set(node, (at = Date.now() / 1000));
  return node.lease_age_seconds + Math.max(0, now - at);
}

/** How long nothing was heard from the node. It ticks. */
export function Lease({ node }: { readonly node: Node }) {
  const now = useNow(1_000);
  const age = leaseAge(node, now);
  const lost = node.health === "lost";
  const ageing = !lost && age > AGEING_SECONDS;
  const Icon = lost || ageing ? TriangleAlert : HeartPulse;
  return (
    <span className={styles.lease} data-tone={lost ? "bad" : ageing ? "warn" : "calm"} title="The time since its agent was last heard">
      <Icon size={13} aria-hidden />
      <span className="num">{age < 1 ? "heard just now" : `heard ${shortDuration(age)} ago`}{ageing ? ", ageing" : ""}</span>
    </span>
  );
}
