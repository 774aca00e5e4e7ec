import { describe, expect, it } from "vitest";
import css from "./jobs.css?raw";
import { channels, HUES, inkOn, jobClass, jobLook, luminance } from "./palette";

/** The hues of one theme, as jobs.css writes them. */
function hues(theme: "light" | "dark"): string[] {
  const block = css.split(":root")[theme === "light" ? 1 : 2] ?? "";
  return [...block.matchAll(/--job-\d+: (#[0-9a-f]{6});/g)].map((found) => found[1] as string);
}

// Machado, Oliveira, Fernandes 2009, severity 1, on linear light.
const EYES: Record<string, number[][]> = {
  normal: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

const times = (matrix: number[][], vector: number[]): number[] =>
  matrix.map((row) => row.reduce((sum, cell, at) => sum + cell * (vector[at] ?? 0), 0));

/** OKLab, in which equal distances look equally different. */
function lab(colour: string, eye: number[][]): number[] {
  const seen = times(eye, channels(colour)).map((part) => Math.min(1, Math.max(0, part)));
  const cones = times(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
      [0.0883024619, 0.2817188376, 0.6299787005]], seen).map(Math.cbrt);
  return times(
    [[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099],
      [0.0259040371, 0.7827717662, -0.808675766]], cones);
}

/** How different two colours look to the eye that tells them apart the least. */
function difference(one: string, other: string): number {
  return Math.min(...Object.values(EYES).map((eye) => {
    const [a, b] = [lab(one, eye), lab(other, eye)];
    return Math.hypot(...a.map((part, at) => part - (b[at] ?? 0)));
  }));
}

describe.each(["light", "dark"] as const)("the hues of the %s theme", (theme) => {
  const all = hues(theme);

  it("are twelve", () => {
    expect(all).toHaveLength(HUES);
  });

  it("differ for every kind of colour blindness, the most between jobs of neighbouring numbers", () => {
    for (const [at, one] of all.entries()) {
      for (const other of all.slice(at + 1)) expect(difference(one, other), `${one} ${other}`).toBeGreaterThan(0.06);
      const next = all[(at + 1) % HUES] as string;
      expect(difference(one, next), `${one} ${next}`).toBeGreaterThan(0.095);
    }
  });

  it("stand out from the page", () => {
    const page = luminance(theme === "light" ? "#ffffff" : "#0e1116");
    for (const one of all) {
      const own = luminance(one);
      expect((Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05), one).toBeGreaterThan(2.2);
    }
  });

  it("carry text that can be read", () => {
    for (const one of all) {
      const [own, ink] = [luminance(one), luminance(inkOn(one))];
      expect((Math.max(own, ink) + 0.05) / (Math.min(own, ink) + 0.05), one).toBeGreaterThan(4.5);
    }
  });
});

describe("a job's looks", () => {
  it("come from its number, so that they are the same on every page", () => {
    expect(jobLook("edt-17")).toEqual({ hue: 5, pattern: 1 });
    expect(jobClass("edt-17")).toBe("job-hue-5 job-pattern-1");
  });

  it("repeat after 48 jobs, not before", () => {
    const looks = Array.from({ length: 48 }, (_, number) => jobClass(`edt-${number + 1}`));
    expect(new Set(looks).size).toBe(48);
    expect(jobClass("edt-49")).toBe(looks[0]);
  });

  it("exist for an id without a number", () => {
    expect(jobLook("nightly")).toEqual(jobLook("nightly"));
    expect(jobLook("nightly").hue).toBeLessThan(HUES);
  });
});
