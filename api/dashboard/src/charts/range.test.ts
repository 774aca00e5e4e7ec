import { describe, expect, it } from "vitest";
import {
  LONGEST, pan, panView, rangeOf, SHORTEST, viewFromWords, viewToWords, zoom, zoomView, type View,
} from "./range";

const NOW = 1_790_000_000;
const HOUR = 3600;

describe("zooming", () => {
  it("keeps the moment under the pointer where it is", () => {
    const closer = zoom({ from: 0, to: 10 * HOUR }, 0.5, 2 * HOUR);
    expect(closer).toEqual({ from: HOUR, to: 6 * HOUR });
    expect((2 * HOUR - closer.from) / (closer.to - closer.from)).toBeCloseTo(0.2);
  });

  it("ends at five minutes and at ninety days, and still keeps the moment", () => {
    const closest = zoom({ from: 0, to: HOUR }, 0.001, 0.25 * HOUR);
    expect(closest.to - closest.from).toBe(SHORTEST);
    expect((0.25 * HOUR - closest.from) / SHORTEST).toBeCloseTo(0.25);
    const widest = zoom({ from: 0, to: HOUR }, 1e9, 0);
    expect(widest).toEqual({ from: 0, to: LONGEST });
  });

  it("comes back to where it was", () => {
    const there = zoom(zoom({ from: 100, to: 100 + HOUR }, 0.8, 500), 1 / 0.8, 500);
    expect(there.from).toBeCloseTo(100);
    expect(there.to).toBeCloseTo(100 + HOUR);
  });

  it("does not end following", () => {
    expect(zoomView({ kind: "follow", span: HOUR }, 2, NOW - 600, NOW, null)).toEqual({ kind: "follow", span: 2 * HOUR });
  });

  it("of everything makes a stretch that stands still", () => {
    const view = zoomView({ kind: "all" }, 0.5, NOW - HOUR, NOW, NOW - 8 * HOUR);
    expect(view.kind).toBe("fixed");
  });
});

describe("panning", () => {
  it("never leaves the picture empty of the past", () => {
    const range = pan({ from: NOW - HOUR, to: NOW }, 100 * HOUR, NOW);
    expect(range.from).toBeLessThan(NOW);
    expect(range.to - range.from).toBe(HOUR);
  });

  it("goes back as far as one likes", () => {
    expect(pan({ from: NOW - HOUR, to: NOW }, -1000 * HOUR, NOW).from).toBe(NOW - 1001 * HOUR);
  });

  it("makes a view that follows stand still", () => {
    const view = panView({ kind: "follow", span: HOUR }, -60, NOW, null);
    expect(view).toMatchObject({ kind: "fixed" });
    expect(rangeOf(view, NOW + 500, null)).toEqual(rangeOf(view, NOW, null));
  });
});

describe("following", () => {
  it("moves with the clock and leaves a little room ahead", () => {
    const view: View = { kind: "follow", span: HOUR };
    const range = rangeOf(view, NOW, null);
    expect(range.to - range.from).toBe(HOUR);
    expect(range.to).toBeGreaterThan(NOW);
    expect(rangeOf(view, NOW + 7, null)).toEqual({ from: range.from + 7, to: range.to + 7 });
  });

  it("of everything begins before the first record", () => {
    const range = rangeOf({ kind: "all" }, NOW, NOW - 20 * HOUR);
    expect(range.from).toBeLessThan(NOW - 20 * HOUR);
    expect(range.from).toBeGreaterThan(NOW - 22 * HOUR);
  });
});

describe("the address", () => {
  const views: View[] = [
    { kind: "follow", span: HOUR }, { kind: "follow", span: 86400 }, { kind: "follow", span: 1234 }, { kind: "all" },
    { kind: "fixed", from: NOW - HOUR, to: NOW },
  ];

  it.each(views)("carries %o", (view) => {
    expect(viewFromWords(viewToWords(view))).toEqual(view);
  });

  it("with nonsense in it shows the first view", () => {
    for (const words of [{ span: "weekly" }, { span: "-5" }, { from: "x", to: "2" }, { from: "9", to: "3" }, {}]) {
      expect(viewFromWords(words)).toEqual({ kind: "follow", span: HOUR });
    }
  });

  it("cannot ask for less than five minutes", () => {
    const view = viewFromWords({ from: String(NOW), to: String(NOW + 2) });
    expect(view).toEqual({ kind: "fixed", from: NOW + 1 - SHORTEST / 2, to: NOW + 1 + SHORTEST / 2 });
  });
});
