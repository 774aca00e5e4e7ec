/**
 * The stretch of time a picture shows, and how zooming and panning change it. Pure.
 * All times are seconds since the epoch.
 */

import type { XRange } from "./props";

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export const SHORTEST = 5 * MINUTE;
export const LONGEST = 90 * DAY;
/** Share of the width that stays free right of now, so that the newest bars do not stick to the edge. */
export const AHEAD = 0.04;

/** The spans that have a button, and their words in the address. */
export const PRESETS = [
  { word: "5m", label: "5 min", seconds: 5 * MINUTE },
  { word: "1h", label: "1 h", seconds: HOUR },
  { word: "6h", label: "6 h", seconds: 6 * HOUR },
  { word: "1d", label: "1 d", seconds: DAY },
  { word: "7d", label: "7 d", seconds: 7 * DAY },
] as const;

/** What is shown: the last `span` seconds, moving with the clock, or a stretch that stands still. */
export type View =
  | { readonly kind: "follow"; readonly span: number }
  | { readonly kind: "all" }
  | { readonly kind: "fixed"; readonly from: number; readonly to: number };

export const FIRST_VIEW: View = { kind: "follow", span: HOUR };

export const spanOf = (range: XRange): number => range.to - range.from;

/** The stretch that `view` shows at `now`; `earliest` is where the records begin. */
export function rangeOf(view: View, now: number, earliest: number | null): XRange {
  if (view.kind === "fixed") return view;
  const span = view.kind === "follow" ? view.span : clampSpan((now - (earliest ?? now - HOUR)) / (1 - AHEAD) * 1.02);
  const to = now + AHEAD * span;
  return { from: to - span, to };
}

export function clampSpan(span: number): number {
  return Math.min(LONGEST, Math.max(SHORTEST, span));
}

/** Zoom by `factor` (below 1: closer) so that the moment `pivot` stays where it is on the screen. */
export function zoom(range: XRange, factor: number, pivot: number): XRange {
  const span = clampSpan(spanOf(range) * factor);
  const share = (pivot - range.from) / spanOf(range);
  const from = pivot - share * span;
  return { from, to: from + span };
}

/** Move by `seconds`, but not so far that nothing but the future is left. */
export function pan(range: XRange, seconds: number, now: number): XRange {
  const latest = now + 0.9 * spanOf(range);
  const by = Math.min(seconds, Math.max(0, latest - range.to));
  return { from: range.from + by, to: range.to + by };
}

/** Zoom a view about `pivot`. One that follows goes on following where now is in the picture. */
export function zoomView(view: View, factor: number, pivot: number, now: number, earliest: number | null): View {
  const range = rangeOf(view, now, earliest);
  if (view.kind === "follow") return { kind: "follow", span: clampSpan(view.span * factor) };
  const closer = zoom(range, factor, pivot);
  return { kind: "fixed", ...closer };
}

/** Pan a view: it stands still from then on, and follows again when it is moved up to now. */
export function panView(view: View, seconds: number, now: number, earliest: number | null): View {
  if (seconds === 0) return view;
  return { kind: "fixed", ...pan(rangeOf(view, now, earliest), seconds, now) };
}

/** The view as it stands in the address; what is not said there is the first view. */
export function viewToWords(view: View): { span?: string; from?: string; to?: string } {
  if (view.kind === "all") return { span: "all" };
  if (view.kind === "fixed") return { from: String(Math.round(view.from)), to: String(Math.round(view.to)) };
  if (view.span === (FIRST_VIEW as { span: number }).span) return {};
  const preset = PRESETS.find((each) => each.seconds === view.span);
  return { span: preset?.word ?? String(Math.round(view.span)) };
}

/** The view that an address asks for; nonsense is the first view. */
export function viewFromWords(words: { span?: string | null; from?: string | null; to?: string | null }): View {
  const from = Number(words.from ?? Number.NaN);
  const to = Number(words.to ?? Number.NaN);
  if (Number.isFinite(from) && Number.isFinite(to) && to > from) {
    const middle = (from + to) / 2;
    const half = clampSpan(to - from) / 2;
    return { kind: "fixed", from: middle - half, to: middle + half };
  }
  if (words.span === "all") return { kind: "all" };
  const preset = PRESETS.find((each) => each.word === words.span);
  if (preset) return { kind: "follow", span: preset.seconds };
  const seconds = Number(words.span ?? Number.NaN);
  return Number.isFinite(seconds) && seconds > 0 ? { kind: "follow", span: clampSpan(seconds) } : FIRST_VIEW;
}
