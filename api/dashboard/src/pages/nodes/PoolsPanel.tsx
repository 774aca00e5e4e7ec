/** The pools, and the nodes that their cluster managers were asked for and that are not there, with the reason. */

import { Link } from "react-router";

import type { AskedNode, Pool } from "../../api/types";
import { plural, shortDuration } from "../../components/format";
import { Panel } from "../../components/Panel";
import styles from "./Nodes.module.css";

/** A provisioner that is silent for longer is marked. */
const SILENT_SECONDS = 30;

export function PoolsPanel({ pools }: { readonly pools: readonly Pool[] }) {
  if (pools.length === 0) return null;
  const waiting = pools.flatMap((pool) => pool.waiting.map((node) => ({ pool, node })));
  const more = pools.reduce((sum, pool) => sum + pool.more, 0);
  return (
    <div className={styles.pools}>
      <Panel title="Pools">
        <div className={styles.gpus} tabIndex={0} role="region" aria-label="Pools of nodes">
          <table aria-label="Pools">
            <thead>
              <tr>
                {["Pool", "From", "There", "Asked for", "Least – most", "Each", "For", "Heard"].map((name) => <th key={name} scope="col">{name}</th>)}
              </tr>
            </thead>
            <tbody>
              {pools.map((pool) => <PoolRow key={pool.name} pool={pool} />)}
            </tbody>
          </table>
          {waiting.length > 0 && (
            <table aria-label="Nodes that are waited for">
              <thead>
                <tr>
                  {["Node", "For", "State", "Waits", "Why"].map((name) => <th key={name} scope="col">{name}</th>)}
                </tr>
              </thead>
              <tbody>
                {waiting.map(({ node }) => <WaitingRow key={node.node} node={node} />)}
              </tbody>
            </table>
          )}
        </div>
        {more > 0 && <p className={styles.more}>{plural(more, "further node is", "further nodes are")} waited for.</p>}
      </Panel>
    </div>
  );
}

function PoolRow({ pool }: { readonly pool: Pool }) {
  const silent = pool.silent_seconds > SILENT_SECONDS;
  return (
    <tr data-pool={pool.name} data-trouble={silent || pool.trouble !== null}>
      <th scope="row" title={pool.note}>{pool.name}</th>
      <td>{pool.kind}</td>
      <td>{pool.there}</td>
      <td>{pool.asked}</td>
      <td>{Math.min(pool.min_nodes, pool.max_nodes)} – {pool.max_nodes}</td>
      <td>{plural(pool.slots, pool.device === "gpu" ? "GPU" : "CPU slot")}</td>
      <td>{pool.per_job ? "one job each" : "any job"}</td>
      <td>{pool.trouble ?? `${shortDuration(pool.silent_seconds)} ago`}</td>
    </tr>
  );
}

function WaitingRow({ node }: { readonly node: AskedNode }) {
  const given = node.give_up_at !== null;
  return (
    <tr data-node={node.node}>
      <th scope="row">{node.node}</th>
      <td>{node.job === null ? "any job" : <Link to={`/jobs/${node.job}`}>{node.job}</Link>}</td>
      <td>{given ? "leaving" : node.state}</td>
      <td>{given ? "" : shortDuration(node.waits_seconds)}</td>
      <td className={styles.why}>{given ? node.give_up_why : node.reason}</td>
    </tr>
  );
}
