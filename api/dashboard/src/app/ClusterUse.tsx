/** How many of the cluster's slots are held, in one line of the bar. */

import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { nodesQuery } from "../api/nodes";
import styles from "./ClusterUse.module.css";

export function ClusterUse() {
  const { data } = useQuery(nodesQuery);
  if (!data) return <span />;
  const slots = data.filter((node) => node.health !== "lost").flatMap((node) => node.slots);
  const held = slots.filter((slot) => slot.busy).length;
  if (data.length === 0) {
    return (
      <Link to="/nodes" className={styles.use}>
        No node yet
      </Link>
    );
  }
  const share = slots.length > 0 ? held / slots.length : 0;
  return (
    <Link to="/nodes" className={styles.use} title={`${held} of ${slots.length} slots of ${data.length} nodes are held`}>
      <span className={styles.track} aria-hidden>
        <span className={styles.held} style={{ width: `${share * 100}%` }} />
      </span>
      <span className="num">
        {held} of {slots.length} slots held
      </span>
    </Link>
  );
}
