/** What the page says of a node's GPUs. Pure. */

import type { Slot } from "../../api/types";
import { bytes, plural } from "../../components/format";

type Gpu = Pick<Slot, "slot" | "device"> & Partial<Slot>;

/** The device of a slot, such as "NVIDIA H200 MIG 1g.18gb". */
export function deviceName(slot: Gpu): string {
  if (!slot.model) return slot.device === "cpu" ? "CPU stand-in" : slot.label || slot.device;
  return slot.mig_profile ? `${slot.model} MIG ${slot.mig_profile}` : slot.model;
}

/** Which devices a node has, and how many of each: "2 × NVIDIA H200 (140 GiB)". */
export function devices(slots: readonly Gpu[]): string[] {
  const found = new Map<string, number>();
  for (const slot of slots) {
    const memory = slot.model && slot.memory_total_bytes ? ` (${bytes(slot.memory_total_bytes)})` : "";
    const name = `${deviceName(slot)}${memory}`;
    found.set(name, (found.get(name) ?? 0) + 1);
  }
  return [...found].map(([name, number]) => `${number} × ${name}`);
}

/** What is wrong with a slot's GPU, a sentence for each. */
export function troubles(slot: Gpu): string[] {
  const found: string[] = [];
  if (slot.problem) found.push(`GPU ${slot.slot} does not answer: ${slot.problem}.`);
  if (slot.ecc_errors) {
    found.push(`GPU ${slot.slot} had ${plural(slot.ecc_errors, "error")} in its memory that could not be corrected.`);
  }
  const others = slot.foreign_processes ?? [];
  if (others.length > 0) {
    const named = others.map((each) => `${each.name || "a process"} (pid ${each.pid})`).join(", ");
    found.push(`GPU ${slot.slot} is also used by ${named}, which ${others.length === 1 ? "belongs" : "belong"} to no job.`);
  }
  return found;
}

export const isGpu = (slot: Gpu): boolean => slot.device !== "cpu";
