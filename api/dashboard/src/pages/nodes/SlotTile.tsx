/** One slot: who holds it, how busy it is, its memory. */

import { Link } from "react-router";

import { useSeesAll } from "../../api/session";
import type { Slot } from "../../api/types";
import { jobClass } from "../../charts/palette";
import { bytes, percent } from "../../components/format";
import { deviceName, troubles } from "./gpus";
import styles from "./Nodes.module.css";

export function SlotTile({ slot }: { readonly slot: Slot }) {
  const seesAll = useSeesAll();
  const use = slot.utilisation ?? null;
  const held = slot.exec_id !== null;
  const state = held ? (slot.leaving ? "leaving" : slot.busy ? "busy" : "starting") : "free";
  return (
    <li
      className={`${styles.slot ?? ""} ${held ? jobClass(slot.exec_id as string) : ""}`} data-state={state} data-slot={slot.slot}
      data-exec={slot.exec_id ?? ""} data-kind={slot.kind ?? ""} data-trouble={troubles(slot).length > 0} title={words(slot)}
    >
      <span className={styles.fill} style={{ height: `${Math.round(Math.min(1, use ?? 0) * 100)}%` }} aria-hidden />
      <span className={styles.slotName}>
        <span className="mono">{slot.slot}</span>
        <span className={styles.use}>{use === null ? "" : percent(use)}</span>
      </span>
      {slot.exec_id === null ? (
        <span className={styles.free}>{slot.problem ? "no answer" : "free"}</span>
      ) : (
        <span className={styles.holder}>
          <i className="job-swatch" />
          {seesAll || slot.owner ? <Link to={`/jobs/${slot.exec_id}`}>{slot.exec_id}</Link> : <span>{slot.exec_id}</span>}
        </span>
      )}
      <span className={styles.memory}>
        {state === "leaving" ? "leaving" : slot.memory_bytes ? bytes(slot.memory_bytes) : ""}
        {slot.temperature_c ? ` · ${Math.round(slot.temperature_c)} °C` : ""}
        {slot.kind === "gang" && <span className={styles.gang}>gang</span>}
      </span>
    </li>
  );
}

/** Everything there is to say of a slot. */
function words(slot: Slot): string {
  const parts = [`${slot.model ? deviceName(slot) : slot.label || `Slot ${slot.slot}`} (${slot.device})`];
  parts.push(slot.exec_id === null ? "free" : `held by ${slot.kind === "gang" ? "the gang " : ""}${slot.exec_id}${slot.owner ? ` of ${slot.owner}` : ""}${slot.leaving ? ", being given back" : ""}`);
  if (slot.utilisation !== null && slot.utilisation !== undefined) parts.push(`${percent(slot.utilisation)} busy`);
  if (slot.memory_bytes) parts.push(`${bytes(slot.memory_bytes)}${slot.memory_total_bytes ? ` of ${bytes(slot.memory_total_bytes)}` : ""} memory`);
  if (slot.power_watts) parts.push(`${Math.round(slot.power_watts)} W`);
  if (slot.temperature_c) parts.push(`${Math.round(slot.temperature_c)} °C`);
  parts.push(...troubles(slot));
  return parts.join(" · ");
}
