/** The theme's colours for canvases, which cannot name CSS properties. Reads the page's style. */

import { jobLook } from "./palette";
import type { ChartColour } from "./props";

/** Reads `--name` as it holds on the page now. */
export type ReadColour = (name: string) => string;

export function readColours(element: Element = document.documentElement): ReadColour {
  const style = getComputedStyle(element);
  const known = new Map<string, string>();
  return (name) => {
    let value = known.get(name);
    if (value === undefined) known.set(name, (value = style.getPropertyValue(name).trim()));
    return value;
  };
}

const NAMES: Record<Exclude<ChartColour, object>, string> = {
  accent: "--accent",
  good: "--good-fill",
  warn: "--warn-fill",
  bad: "--bad-fill",
  muted: "--calm-fill",
  second: "--job-5",
  third: "--job-2",
};

/** The custom property of a chart's colour. */
export function colourName(colour: ChartColour): string {
  return typeof colour === "string" ? NAMES[colour] : `--job-${jobLook(colour.job).hue}`;
}

/** Lines are told apart by their dashes, too. */
export function dashOf(colour: ChartColour): number[] {
  return colour === "second" ? [7, 4] : colour === "third" ? [2, 3] : [];
}

/** `#rrggbb` with so much of it left as `share` says. */
export function veil(colour: string, share: number): string {
  return `${colour}${Math.round(share * 255).toString(16).padStart(2, "0")}`;
}
