/** Rows of the timeline: slots grouped by node, laid out from top to bottom. Pure. */

export interface LaneNode {
  readonly name: string;
  readonly slots: readonly { readonly slot: string }[];
}

/** One row: a slot of a node. */
export interface Lane {
  readonly key: string;
  readonly node: string;
  readonly slot: string;
  readonly top: number;
  readonly height: number;
}

/** A node's rows with its name above them. */
export interface LaneGroup {
  readonly node: string;
  readonly top: number;
  /** Where the first row begins: below the name. */
  readonly rows: number;
  readonly bottom: number;
  readonly lanes: readonly Lane[];
}

export interface Layout {
  readonly groups: readonly LaneGroup[];
  /** All rows by their key. */
  readonly lanes: ReadonlyMap<string, Lane>;
  readonly height: number;
}

const GROUP_HEAD = 26;
const GROUP_GAP = 8;

export const laneKey = (node: string, slot: string): string => `${node}\u0000${slot}`;

/** Pixels of one row: comfortable for a few slots, dense for a hundred. */
export function laneHeight(slots: number): number {
  return slots <= 8 ? 34 : slots <= 16 ? 28 : slots <= 40 ? 22 : 16;
}

/** All rows. Nodes by name and slots by number, as people count: gpu-2 before gpu-10. */
export function layOut(nodes: readonly LaneNode[], height?: number): Layout {
  const row = height ?? laneHeight(nodes.reduce((sum, node) => sum + node.slots.length, 0));
  const groups: LaneGroup[] = [];
  const lanes = new Map<string, Lane>();
  const [head, gap] = row < 20 ? [22, 4] : [GROUP_HEAD, GROUP_GAP];
  let top = 0;
  for (const node of [...nodes].sort((one, other) => byNumber(one.name, other.name))) {
    const rows = top + head;
    const slots = node.slots.map((each) => each.slot).sort(byNumber);
    const own = slots.map((slot, at): Lane => ({
      key: laneKey(node.name, slot), node: node.name, slot, top: rows + at * row, height: row,
    }));
    for (const lane of own) lanes.set(lane.key, lane);
    const bottom = rows + own.length * row;
    groups.push({ node: node.name, top, rows, bottom, lanes: own });
    top = bottom + gap;
  }
  return { groups, lanes, height: Math.max(0, top - gap) };
}

export function byNumber(one: string, other: string): number {
  return one.localeCompare(other, "en", { numeric: true });
}

/** The row at a height, or null between rows. */
export function laneAt(layout: Layout, y: number): Lane | null {
  const group = layout.groups.find((each) => y >= each.rows && y < each.bottom);
  if (!group) return null;
  return group.lanes[Math.floor((y - group.rows) / (group.lanes[0]?.height ?? 1))] ?? null;
}

/** The groups that a window of `height` pixels from `top` on shows a part of. */
export function groupsBetween(layout: Layout, top: number, height: number): readonly LaneGroup[] {
  return layout.groups.filter((group) => group.bottom > top && group.top < top + height);
}
