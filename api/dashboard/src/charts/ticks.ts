/** Where an axis is marked and what stands there. Pure but for the machine's time zone. */

import type { XRange } from "./props";

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY,
];

export interface Tick {
  readonly at: number;
  readonly label: string;
  /** A new day begins here, or the axis counts in days. */
  readonly day: boolean;
}

/** The coarsest step that the eye reads as a clock's, of which at most `most` fit into `seconds`. */
export function timeStep(seconds: number, most: number): number {
  return TIME_STEPS.find((step) => seconds / step <= most) ?? Math.ceil(seconds / most / DAY) * DAY;
}

/** Ticks at round local times, at most one for every `apart` pixels of `width`. */
export function timeTicks(range: XRange, width: number, apart = 90): Tick[] {
  const seconds = range.to - range.from;
  if (!(seconds > 0) || width <= 0) return [];
  const step = timeStep(seconds, Math.max(1, width / apart));
  const found: Tick[] = [];
  for (let at = firstTick(range.from, step); at <= range.to; at = nextTick(at, step)) {
    const time = new Date(at * 1000);
    const midnight = time.getHours() === 0 && time.getMinutes() === 0 && time.getSeconds() === 0;
    found.push({ at, label: midnight ? dayLabel(time) : clockLabel(time, step < MINUTE), day: midnight });
  }
  return found;
}

/** The first round local time at or after `from`. */
function firstTick(from: number, step: number): number {
  const day = new Date(from * 1000);
  day.setHours(0, 0, 0, 0);
  if (step > DAY) {
    // Counted from the epoch's first Monday, so that panning does not move the ticks.
    const days = Math.round((day.getTime() / 1000 - day.getTimezoneOffset() * MINUTE) / DAY) - 4;
    const every = step / DAY;
    day.setDate(day.getDate() + ((-days % every) + every) % every);
  }
  const midnight = day.getTime() / 1000;
  if (step >= DAY) return midnight >= from ? midnight : nextTick(midnight, step);
  return wallClock(midnight, Math.ceil((from - midnight) / step) * step);
}

/** The tick after the one at `at`. Days have 23 to 25 hours, so steps of hours are counted on the local clock. */
function nextTick(at: number, step: number): number {
  if (step < HOUR) return at + step;
  const time = new Date(at * 1000);
  if (step >= DAY) time.setDate(time.getDate() + step / DAY);
  else time.setHours(time.getHours() + step / HOUR);
  const next = time.getTime() / 1000;
  return next > at ? next : at + step;
}

function wallClock(midnight: number, offset: number): number {
  const time = new Date(midnight * 1000);
  time.setHours(0, 0, offset, 0);
  return time.getTime() / 1000;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const two = (value: number): string => String(value).padStart(2, "0");

export function dayLabel(time: Date): string {
  return `${time.getDate()} ${MONTHS[time.getMonth()]}`;
}

export function clockLabel(time: Date, withSeconds: boolean): string {
  const clock = `${two(time.getHours())}:${two(time.getMinutes())}`;
  return withSeconds ? `${clock}:${two(time.getSeconds())}` : clock;
}

/** A step of 1, 2 or 5 times a power of ten, of which about `count` fit into `span`. */
export function niceStep(span: number, count: number): number {
  if (!(span > 0) || count < 1) return 1;
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const share = rough / power;
  return (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10) * power;
}

/** Bounds of an axis for `values`: round numbers a little outside them; `fixed` bounds stand as they are. */
export function niceBounds(
  lowest: number,
  highest: number,
  fixed: { readonly min?: number; readonly max?: number; readonly whole?: boolean } = {},
): { min: number; max: number; step: number } {
  let low = Math.min(fixed.min ?? lowest, lowest);
  let high = Math.max(fixed.max ?? highest, highest);
  if (!Number.isFinite(low) || !Number.isFinite(high)) [low, high] = [fixed.min ?? 0, fixed.max ?? 1];
  if (high - low < 1e-12 * Math.max(1, Math.abs(high))) {
    const room = Math.abs(high) * 0.1 || 1;
    if (fixed.min === undefined || fixed.min > low - room) low = fixed.min ?? low - room;
    high += room;
  }
  let step = niceStep(high - low, 4);
  if (fixed.whole) step = Math.max(1, Math.round(step));
  return {
    min: fixed.min !== undefined && fixed.min <= lowest ? fixed.min : Math.floor(low / step + 1e-9) * step,
    max: fixed.max !== undefined && fixed.max >= highest ? fixed.max : Math.ceil(high / step - 1e-9) * step,
    step,
  };
}

/** A chart is less than this many pixels high. */
const MOST_PIXELS = 200;

/**
 * Whether values are read better on an axis of powers of ten: all are positive, and on an even axis that reaches to the
 * largest one, half of them would lie within one pixel of zero. So it is with a perplexity that begins at 1e20 and ends
 * at 20.
 */
export function spansPowers(values: readonly (number | null | undefined)[]): boolean {
  const known = values.filter((value): value is number => value !== null && value !== undefined && Number.isFinite(value));
  if (known.length < 2 || known.some((value) => value <= 0)) return false;
  const sorted = known.sort((one, other) => one - other);
  const [middle, most] = [sorted[Math.floor(sorted.length / 2)] as number, sorted.at(-1) as number];
  return most >= MOST_PIXELS * middle;
}

/** Bounds of an axis of powers of ten. */
export function powerBounds(lowest: number, highest: number): [number, number] {
  if (!(lowest > 0) || !Number.isFinite(highest)) return [1, 10];
  const [low, high] = [Math.floor(Math.log10(lowest) + 1e-9), Math.ceil(Math.log10(highest) - 1e-9)];
  return [10 ** low, 10 ** Math.max(high, low + 1)];
}

/** Powers of ten from `low` to `high`, at most about `most` of them. */
export function powerTicks(low: number, high: number, most = 5): number[] {
  const [first, last] = [Math.round(Math.log10(low)), Math.round(Math.log10(high))];
  const step = Math.max(1, Math.ceil((last - first) / most));
  return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, at) => Number(`1e${first + at * step}`));
}

/** A number in few characters: 12.3k, 0.041, 3e-7. */
export function compact(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e15 || size < 1e-4) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (size >= unit * 0.9995) return `${trim(value / unit, 3)}${letter}`;
  }
  return trim(value, size < 1 ? 3 : 4);
}

function trim(value: number, digits: number): string {
  return String(Number(value.toPrecision(digits)));
}
