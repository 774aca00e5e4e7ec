/** Draws the timeline onto a canvas: only what is in sight. Reads a scene, changes nothing. */

import { type Bar, type BarStore, type Piece, pieces } from "../../charts/bars";
import { readColours, type ReadColour, veil } from "../../charts/colours";
import { groupsBetween, type Lane, type LaneGroup, type Layout } from "../../charts/lanes";
import type { Mark } from "../../charts/marks";
import { HUES, inkOn, jobLook } from "../../charts/palette";
import type { XRange } from "../../charts/props";
import { timeTicks } from "../../charts/ticks";
import type { TimelineNode } from "./model";
import { hatch, jobPatterns } from "./patterns";

/** Pixels of the names at the left, and of the clock at the top. */
export const GUTTER = 112;
export const AXIS = 30;

/** The theme as the painter needs it; made anew when the theme or the screen changes. */
export interface Brushes {
  readonly colour: ReadColour;
  readonly hues: readonly string[];
  readonly inks: readonly string[];
  readonly patterns: readonly (CanvasPattern | null)[];
  readonly hatches: Readonly<Record<string, CanvasPattern | null>>;
  readonly font: string;
  readonly mono: string;
}

export interface Scene {
  readonly layout: Layout;
  readonly bars: BarStore;
  readonly nodes: ReadonlyMap<string, TimelineNode>;
  readonly marks: readonly Mark[];
  readonly range: XRange;
  readonly now: number;
  readonly width: number;
  readonly height: number;
  readonly scrollTop: number;
  /** How strongly a job is drawn, 0..1. */
  readonly strength: (execId: string) => number;
  readonly name: (execId: string) => string | null;
  readonly isGang: (execId: string) => boolean;
  /** The job under the pointer: all of its bars are outlined. */
  readonly hovered: string | null;
  /** Where the pointer is, in pixels from the left; null: elsewhere. */
  readonly pointer: number | null;
}

export function makeBrushes(context: CanvasRenderingContext2D): Brushes {
  const colour = readColours();
  const hues = Array.from({ length: HUES }, (_, hue) => colour(`--job-${hue}`));
  return {
    colour,
    hues,
    inks: hues.map(inkOn),
    patterns: jobPatterns(context),
    hatches: {
      lost: hatch(context, veil(colour("--bad-fill"), 0.55)),
      draining: hatch(context, veil(colour("--warn-fill"), 0.45)),
      cordoned: hatch(context, veil(colour("--calm-fill"), 0.4)),
    },
    font: colour("--font"),
    mono: colour("--mono"),
  };
}

export function paint(context: CanvasRenderingContext2D, scene: Scene, brushes: Brushes): void {
  const { width, height, range } = scene;
  const { colour } = brushes;
  const plotWidth = width - GUTTER;
  context.clearRect(0, 0, width, height);
  const ticks = timeTicks(range, plotWidth).map((tick) => ({ ...tick, x: toX(scene, tick.at) }));

  context.save();
  context.beginPath();
  context.rect(GUTTER, AXIS, plotWidth, height - AXIS);
  context.clip();
  for (const group of groupsBetween(scene.layout, scene.scrollTop, height - AXIS)) paintRows(context, scene, brushes, group);
  for (const tick of ticks) {
    context.fillStyle = colour(tick.day ? "--line-strong" : "--line");
    context.fillRect(Math.round(tick.x), AXIS, 1, height - AXIS);
  }
  for (const group of groupsBetween(scene.layout, scene.scrollTop, height - AXIS)) {
    for (const lane of group.lanes) paintLane(context, scene, brushes, lane);
    paintTrouble(context, scene, brushes, group);
  }
  paintMarks(context, scene, brushes);
  context.restore();

  paintNames(context, scene, brushes);
  paintAxis(context, scene, brushes, ticks);
}

export function toX(scene: Pick<Scene, "range" | "width">, time: number): number {
  return GUTTER + ((time - scene.range.from) / (scene.range.to - scene.range.from)) * (scene.width - GUTTER);
}

const toY = (scene: Scene, layoutY: number): number => AXIS + layoutY - scene.scrollTop;

function paintRows(context: CanvasRenderingContext2D, scene: Scene, { colour }: Brushes, group: LaneGroup): void {
  context.fillStyle = colour("--surface-2");
  context.fillRect(GUTTER, toY(scene, group.rows), scene.width - GUTTER, group.bottom - group.rows);
  context.fillStyle = colour("--line");
  for (const lane of group.lanes) context.fillRect(GUTTER, toY(scene, lane.top + lane.height) - 1, scene.width - GUTTER, 1);
}

function paintLane(context: CanvasRenderingContext2D, scene: Scene, brushes: Brushes, lane: Lane): void {
  const top = toY(scene, lane.top);
  if (top + lane.height < AXIS || top > scene.height) return;
  const inset = lane.height > 18 ? 3 : 1.5;
  const box = { y: top + inset, height: lane.height - 2 * inset - 1 };
  for (const piece of pieces(scene.bars.lane(lane.key), scene.range, scene.width - GUTTER, scene.now)) {
    paintPiece(context, scene, brushes, piece, box);
  }
  context.globalAlpha = 1;
}

function paintPiece(
  context: CanvasRenderingContext2D, scene: Scene, brushes: Brushes, piece: Piece, box: { y: number; height: number },
): void {
  const { bar } = piece;
  const look = jobLook(bar.execId);
  const hue = brushes.hues[look.hue] as string;
  const x = GUTTER + piece.x;
  // A hair between neighbours, but never so much that a short bar is not seen.
  const width = Math.max(piece.width - (piece.width > 4 ? 1 : 0), 1.5);
  const strength = scene.strength(bar.execId);
  const radius = Math.min(3, width / 2);
  context.globalAlpha = strength;
  context.fillStyle = hue;
  context.beginPath();
  if (width < 8) context.rect(x, box.y, width, box.height);
  else if (bar.to === null) context.roundRect(x, box.y, width, box.height, [radius, 0, 0, radius]);
  else context.roundRect(x, box.y, width, box.height, radius);
  context.fill();
  const pattern = brushes.patterns[look.pattern];
  if (pattern && width > 9) {
    context.fillStyle = pattern;
    context.fill();
  }
  paintWaking(context, scene, brushes, bar, { x, width, ...box });
  if (scene.isGang(bar.execId)) paintFrame(context, brushes.inks[look.hue] as string, { x, width, ...box });
  if (scene.hovered === bar.execId) {
    context.globalAlpha = 1;
    context.strokeStyle = brushes.colour("--text");
    context.lineWidth = 1.5;
    context.stroke();
  }
  if (box.height >= 11 && width > 34) paintLabel(context, scene, brushes, bar, { x, width, ...box });
}

interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** The sign of a gang, whose slots are held from start to end: a line along both edges of its bars. */
function paintFrame(context: CanvasRenderingContext2D, ink: string, { x, y, width, height }: Box): void {
  if (width < 3 || height < 7) return;
  context.fillStyle = ink;
  context.fillRect(x, y + 1.5, width, 1.5);
  context.fillRect(x, y + height - 3, width, 1.5);
}

/** While its process is not there yet the slot is given, but nothing trains: that part is pale. */
function paintWaking(context: CanvasRenderingContext2D, scene: Scene, brushes: Brushes, bar: Bar, box: Box): void {
  const awake = bar.started ?? (bar.to === null ? scene.now : bar.to);
  const until = Math.min(toX(scene, awake), box.x + box.width);
  if (until - box.x < 1.5) return;
  context.globalAlpha = 0.5;
  context.fillStyle = brushes.colour("--surface");
  context.fillRect(box.x + 1, box.y + 1, until - box.x - 1, box.height - 2);
  context.globalAlpha = scene.strength(bar.execId);
}

function paintLabel(context: CanvasRenderingContext2D, scene: Scene, brushes: Brushes, bar: Bar, box: Box): void {
  const look = jobLook(bar.execId);
  const size = box.height >= 18 ? 11.5 : 10;
  context.font = `600 ${size}px ${brushes.font}`;
  const own = textWidth(context, bar.execId);
  if (own + 12 > box.width) return;
  const name = scene.name(bar.execId);
  const whole = name === null ? null : `${bar.execId}  ${name}`;
  const text = whole !== null && textWidth(context, whole) + 14 < box.width ? whole : bar.execId;
  const width = textWidth(context, text);
  const faint = scene.strength(bar.execId) < 0.5;
  context.globalAlpha = faint ? 0.8 : 1;
  if (look.pattern > 0 && !faint) {
    // A pattern below letters makes them hard to read: they get the plain hue below them.
    context.fillStyle = brushes.hues[look.hue] as string;
    context.fillRect(box.x + 4, box.y + 1, width + 6, box.height - 2);
  }
  context.fillStyle = faint ? brushes.colour("--text") : (brushes.inks[look.hue] as string);
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText(text, box.x + 7, box.y + box.height / 2 + 0.5);
}

const widths = new Map<string, number>();

function textWidth(context: CanvasRenderingContext2D, text: string): number {
  const key = `${context.font}\u0000${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 20_000) widths.clear();
    widths.set(key, (width = context.measureText(text).width));
  }
  return width;
}

/** A hatch over the rows of a node that is lost, drained or cordoned, from when it became so. */
function paintTrouble(context: CanvasRenderingContext2D, scene: Scene, brushes: Brushes, group: LaneGroup): void {
  const node = scene.nodes.get(group.node);
  const pattern = node && brushes.hatches[node.health];
  if (!node || !pattern) return;
  const since = node.health_since ?? (node.health === "lost" ? node.seen_at : scene.now);
  const x = Math.max(GUTTER, toX(scene, since));
  if (x >= scene.width) return;
  context.fillStyle = pattern;
  context.fillRect(x, toY(scene, group.rows), scene.width - x, group.bottom - group.rows);
}

function paintMarks(context: CanvasRenderingContext2D, scene: Scene, { colour }: Brushes): void {
  context.lineJoin = "round";
  const size = (scene.layout.groups[0]?.lanes[0]?.height ?? 28) < 20 ? 0.8 : 1;
  for (const mark of scene.marks) {
    const x = GUTTER + mark.x;
    const y = toY(scene, mark.y);
    if (y < AXIS - 8 || y > scene.height + 8) continue;
    context.globalAlpha = Math.max(0.25, scene.strength(mark.fact.execId));
    context.beginPath();
    if (mark.kind === "failure") {
      context.arc(x, y, 6 * size, 0, 7);
      context.fillStyle = colour("--bad-fill");
    } else {
      const up = (mark.fact.toSlots > mark.fact.fromSlots ? -1 : 1) * size;
      context.moveTo(x - 5 * size, y + 1 - 4 * up);
      context.lineTo(x + 5 * size, y + 1 - 4 * up);
      context.lineTo(x, y + 1 + 4.5 * up);
      context.closePath();
      context.fillStyle = colour("--text");
    }
    context.strokeStyle = colour("--surface");
    context.lineWidth = 3;
    context.stroke();
    context.fill();
    if (mark.kind === "failure") {
      context.beginPath();
      context.moveTo(x - 2.4, y - 2.4);
      context.lineTo(x + 2.4, y + 2.4);
      context.moveTo(x + 2.4, y - 2.4);
      context.lineTo(x - 2.4, y + 2.4);
      context.strokeStyle = "#ffffff";
      context.lineWidth = 1.6;
      context.stroke();
    }
  }
  context.globalAlpha = 1;
}

function paintNames(context: CanvasRenderingContext2D, scene: Scene, { colour, font, mono }: Brushes): void {
  context.fillStyle = colour("--surface");
  context.fillRect(0, AXIS, GUTTER, scene.height - AXIS);
  context.save();
  context.beginPath();
  context.rect(0, AXIS, scene.width, scene.height - AXIS);
  context.clip();
  context.textBaseline = "middle";
  for (const group of groupsBetween(scene.layout, scene.scrollTop, scene.height - AXIS)) {
    const node = scene.nodes.get(group.node);
    const middle = toY(scene, (group.top + group.rows) / 2) + 1;
    context.textAlign = "left";
    context.font = `600 12px ${font}`;
    context.fillStyle = colour("--text");
    context.fillText(group.node, 14, middle);
    if (node && node.health !== "up") {
      const left = 14 + textWidth(context, group.node) + 10;
      context.font = `600 11px ${font}`;
      context.fillStyle = colour(node.health === "lost" ? "--bad" : node.health === "draining" ? "--warn" : "--text-3");
      context.fillText(`${node.health === "lost" ? "✕" : "◌"} ${node.health}`, left, middle);
    }
    const small = (group.lanes[0]?.height ?? 20) < 18;
    context.font = `${small ? 10 : 11}px ${mono}`;
    context.fillStyle = colour("--text-3");
    context.textAlign = "right";
    for (const lane of group.lanes) context.fillText(lane.slot, GUTTER - 12, toY(scene, lane.top + lane.height / 2));
  }
  context.restore();
  context.fillStyle = colour("--line");
  context.fillRect(GUTTER - 1, AXIS, 1, scene.height - AXIS);
}

function paintAxis(
  context: CanvasRenderingContext2D, scene: Scene, { colour, font }: Brushes,
  ticks: readonly { x: number; label: string; day: boolean }[],
): void {
  const { width, height } = scene;
  context.fillStyle = colour("--surface");
  context.fillRect(0, 0, width, AXIS);
  context.fillStyle = colour("--line");
  context.fillRect(0, AXIS - 1, width, 1);
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (const tick of ticks) {
    context.font = `${tick.day ? "600 " : ""}11px ${font}`;
    context.fillStyle = colour(tick.day ? "--text" : "--text-3");
    if (tick.x > GUTTER + 16 && tick.x < width - 18) context.fillText(tick.label, tick.x, AXIS / 2 - 1);
  }
  const now = Math.round(toX(scene, scene.now));
  if (now >= GUTTER && now <= width) {
    context.fillStyle = colour("--accent");
    context.fillRect(now, AXIS - 5, 1.5, height - AXIS + 5);
    context.beginPath();
    context.arc(now + 0.75, AXIS - 5, 3.5, 0, 7);
    context.fill();
  }
  if (scene.pointer !== null && scene.pointer > GUTTER) {
    const time = scene.range.from + ((scene.pointer - GUTTER) / (width - GUTTER)) * (scene.range.to - scene.range.from);
    context.fillStyle = colour("--text-3");
    context.fillRect(Math.round(scene.pointer), AXIS, 1, height - AXIS);
    const label = clock(time, scene.range);
    context.font = `600 11px ${font}`;
    const wide = textWidth(context, label) + 14;
    const left = Math.min(Math.max(GUTTER, scene.pointer - wide / 2), width - wide);
    context.fillStyle = colour("--text");
    context.beginPath();
    context.roundRect(left, 5, wide, 19, 4);
    context.fill();
    context.fillStyle = colour("--surface");
    context.fillText(label, left + wide / 2, AXIS / 2);
  }
}

function clock(time: number, range: XRange): string {
  const date = new Date(time * 1000);
  const two = (value: number): string => String(value).padStart(2, "0");
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  const day = `${date.getDate()}.${date.getMonth() + 1}.`;
  const span = range.to - range.from;
  return span > 2 * 86_400 ? `${day} ${minutes}` : span > 6 * 3600 ? minutes : `${minutes}:${two(date.getSeconds())}`;
}
