/** A node in detail, at the side of the page: facts, and how busy each slot was. */

import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";

import type { Node } from "../../api/types";
import type { ChartColour, ChartSeries } from "../../charts/props";
import { TimeSeries } from "../../charts/TimeSeries";
import { Dialog } from "../../components/Dialog";
import { number, percent } from "../../components/format";
import { Facts } from "../../components/Panel";
import { ProblemNote } from "../../components/ProblemNote";
import { Tabs } from "../../components/Tabs";
import { Ago, Time } from "../../components/Time";
import { GpuTable, Troubles } from "./GpuTable";
import { devices } from "./gpus";
import { HealthBadge, Lease } from "./Health";
import { NodeVerbs } from "./NodeVerbs";
import styles from "./Nodes.module.css";
import { SlotTile } from "./SlotTile";
import type { UsageSeries } from "./occupancy";
import { usageQuery } from "./usage";

const SPANS = [
  { value: "1h", label: "1 h", seconds: 3600 },
  { value: "6h", label: "6 h", seconds: 6 * 3600 },
  { value: "1d", label: "1 d", seconds: 86_400 },
] as const;

/** More lines than this in one chart cannot be told apart: then the mean stands alone. */
const MOST_LINES = 4;

export function NodeDrawer({ node, onClose }: { readonly node: Node; readonly onClose: () => void }) {
  const [search, setSearch] = useSearchParams();
  const span = SPANS.find((each) => each.value === search.get("span")) ?? SPANS[0];
  const { data, error, refetch } = useQuery(usageQuery(node.name, span.seconds, 180));
  const now = Date.now() / 1000;
  const range = { from: now - span.seconds, to: now };
  return (
    <Dialog title={node.name} side onClose={onClose}>
      <div className={styles.drawer}>
        <div className={styles.drawerHead}>
          <HealthBadge node={node} />
          <Lease node={node} />
          <span className={styles.stretch} />
          <NodeVerbs node={node} />
        </div>
        <Facts
          facts={[
            ["Address", node.host],
            ["Cores", String(node.cores)],
            ["Launcher", node.launcher],
            ["Joined", <Time at={node.registered_at} />],
            node.health_since ? ["In this state", <Ago at={node.health_since} />] : null,
            ["Devices", devices(node.slots).join(", ")],
          ]}
        />
        <ul className={styles.slots} aria-label={`Slots of ${node.name}, in detail`} data-few={node.slots.length <= 8}>
          {node.slots.map((slot) => <SlotTile key={slot.slot} slot={slot} />)}
        </ul>
        <Troubles node={node} />
        <GpuTable node={node} />
        <Tabs
          label="Range" small tabs={SPANS} value={span.value}
          onChange={(value) => setSearch((before) => {
            const after = new URLSearchParams(before);
            after.set("span", value);
            return after;
          }, { replace: true })}
        >
          {error ? (
            <ProblemNote error={error} onRetry={() => void refetch()} />
          ) : (
            <div className={styles.charts}>
              <TimeSeries
                title="Utilisation" x={data?.x ?? []} series={data ? lines(data, "use", percent) : []} y={{ min: 0, max: 1 }} sync={node.name}
                range={range} height={150} empty="No sample yet: the agent sends one every 15 seconds."
              />
              <TimeSeries
                title="Memory" x={data?.x ?? []} series={data ? lines(data, "memory", gib) : []} y={{ min: 0 }} sync={node.name} range={range}
                height={130} empty="No sample yet."
              />
            </div>
          )}
        </Tabs>
      </div>
    </Dialog>
  );
}

/** A line for each slot; of many slots their mean alone, of memory their sum. */
function lines(data: UsageSeries, what: "use" | "memory", format: (value: number) => string): ChartSeries[] {
  if (data.slots.length > MOST_LINES) {
    const sum = data.x.map((_, at) => data.slots.reduce<number | null>((total, each) => {
      const value = each.memory[at];
      return value === null || value === undefined ? total : (total ?? 0) + value / GIB;
    }, null));
    return [what === "use"
      ? { label: "Mean", values: data.mean, format, fill: true }
      : { label: "Sum", values: sum, format, fill: true }];
  }
  return data.slots.map((each, at) => ({
    label: `Slot ${each.slot}`, format, colour: hueOf(at),
    values: what === "use" ? each.use : each.memory.map((value) => (value === null ? null : value / GIB)),
  }));
}

const GIB = 1024 ** 3;
/** Memory is drawn in GiB, so that the axis has round numbers of them. */
const gib = (value: number): string => `${number(value)} GiB`;

/** A slot's line is no job's, but the twelve hues serve it as well. */
const hueOf = (at: number): ChartColour => ({ job: `slot-${at + 1}` });
