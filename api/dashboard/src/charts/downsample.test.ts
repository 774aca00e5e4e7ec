import { describe, expect, it } from "vitest";
import { minMax } from "./downsample";

const count = 20_000;
const x = Array.from({ length: count }, (_, at) => at);
const wave = x.map((at) => Math.sin(at / 300));

describe("fewer points", () => {
  it("are all of them where there are few", () => {
    expect(minMax([1, 2, 3], [[5, null, 7]], 600)).toEqual([0, 1, 2]);
  });

  it("are about as many as were asked for, in order, first and last among them", () => {
    const kept = minMax(x, [wave], 600);
    expect(kept.length).toBeLessThanOrEqual(600);
    expect(kept.length).toBeGreaterThan(400);
    expect(kept[0]).toBe(0);
    expect(kept.at(-1)).toBe(count - 1);
    expect(kept).toEqual([...new Set(kept)].sort((one, other) => one - other));
  });

  it("lose no peak of any column", () => {
    const spiky: (number | null)[] = wave.slice();
    spiky[12_345] = 99;
    spiky[6_789] = -99;
    const kept = minMax(x, [wave, spiky], 600);
    expect(kept).toContain(12_345);
    expect(kept).toContain(6_789);
  });

  it("keep a gap", () => {
    const gappy: (number | null)[] = wave.map((value, at) => (at > 5_000 && at < 9_000 ? null : value));
    expect(minMax(x, [gappy], 600).filter((at) => gappy[at] === null).length).toBeGreaterThan(5);
  });
});
