/** The GPUs of a node: what is wrong with them, and how each of them is. */

import { TriangleAlert } from "lucide-react";

import type { Node, Slot } from "../../api/types";
import { bytes, count, percent } from "../../components/format";
import { deviceName, isGpu, troubles } from "./gpus";
import styles from "./Nodes.module.css";

/** Sentences on what is wrong; nothing where nothing is. */
export function Troubles({ node }: { readonly node: Node }) {
  const found = node.slots.flatMap(troubles);
  if (found.length === 0) return null;
  return (
    <ul className={styles.troubles} aria-label={`What is wrong with the GPUs of ${node.name}`}>
      {found.map((sentence) => (
        <li key={sentence}>
          <TriangleAlert size={13} aria-hidden /> {sentence}
        </li>
      ))}
    </ul>
  );
}

/** A line for each GPU and MIG device; nothing on a node without. */
export function GpuTable({ node }: { readonly node: Node }) {
  const gpus = node.slots.filter(isGpu);
  if (gpus.length === 0) return null;
  return (
    <div className={styles.gpus} tabIndex={0} role="region" aria-label="GPUs by slot">
      <table aria-label={`GPUs of ${node.name}`}>
        <thead>
          <tr>
            {["Slot", "Device", "Use", "Memory", "Power", "Temp.", "ECC"].map((title) => (
              <th key={title} scope="col">{title}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {gpus.map((slot) => <Row key={slot.slot} slot={slot} />)}
        </tbody>
      </table>
    </div>
  );
}

function Row({ slot }: { readonly slot: Slot }) {
  const capability = slot.compute_capability ? `compute capability ${slot.compute_capability}, ` : "";
  return (
    <tr data-slot={slot.slot} data-trouble={troubles(slot).length > 0}>
      <th scope="row">{slot.slot}</th>
      <td title={`${deviceName(slot)}, ${capability}${slot.device}`}>{deviceName(slot).replace(/^NVIDIA /, "")}</td>
      <td>{known(slot.utilisation, percent)}</td>
      <td>{memory(slot)}</td>
      <td>{known(slot.power_watts, (watts) => `${Math.round(watts)} W`)}</td>
      <td>{known(slot.temperature_c, (degrees) => `${Math.round(degrees)} °C`)}</td>
      <td title="Errors in its memory that could not be corrected">{known(slot.ecc_errors, count)}</td>
    </tr>
  );
}

function known(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "–" : format(value);
}

function memory(slot: Slot): string {
  if (!slot.memory_total_bytes) return known(slot.memory_bytes, bytes);
  return `${known(slot.memory_bytes, bytes)} of ${bytes(slot.memory_total_bytes)}`;
}
