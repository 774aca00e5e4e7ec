/** Which hue and pattern a job has, by its number: the hues stand in jobs.css. Pure. */

export const HUES = 12;
export const PATTERNS = 4;

/** A job's looks: the same wherever it is drawn. */
export interface JobLook {
  /** 0..11: `--job-<hue>` in jobs.css. */
  readonly hue: number;
  /** 0 plain, 1 rising stripes, 2 falling stripes, 3 dots: so the 13th job is not taken for the first. */
  readonly pattern: number;
}

/** The looks of `edt-17`. An id without a number gets one by its letters. */
export function jobLook(execId: string): JobLook {
  const number = jobNumber(execId);
  return { hue: number % HUES, pattern: Math.floor(number / HUES) % PATTERNS };
}

/** Class names that give an element `--job` and `--job-pattern`. */
export function jobClass(execId: string): string {
  const { hue, pattern } = jobLook(execId);
  return `job-hue-${hue} job-pattern-${pattern}`;
}

/** The number an exec id ends in. */
export function jobNumber(execId: string): number {
  const digits = /(\d{1,15})$/.exec(execId)?.[1];
  if (digits !== undefined) return Number(digits);
  let sum = 0;
  for (const letter of execId) sum = (sum * 31 + (letter.codePointAt(0) ?? 0)) % 1_000_003;
  return sum;
}

/** Black or white, whichever reads better on `colour` (`#rrggbb`). */
export function inkOn(colour: string): "#ffffff" | "#0b0e14" {
  const light = luminance(colour);
  return 1.05 / (light + 0.05) >= (light + 0.05) / (luminance("#0b0e14") + 0.05) ? "#ffffff" : "#0b0e14";
}

/** WCAG's relative luminance of `#rrggbb`. */
export function luminance(colour: string): number {
  const [red, green, blue] = channels(colour);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Red, green and blue of `#rrggbb` as linear light, 0..1. */
export function channels(colour: string): [number, number, number] {
  const value = Number.parseInt(colour.trim().slice(1), 16);
  const linear = (byte: number) => {
    const part = byte / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  };
  return [linear((value >> 16) & 255), linear((value >> 8) & 255), linear(value & 255)];
}
