/** Numbers and times as people read them. Pure; times are seconds since the epoch. */

/** "4 s", "2 min 05 s", "3 h 12 min", "2 d 4 h". */
export function duration(seconds: number): string {
  const whole = Math.max(0, seconds);
  if (whole === 0) return "0 s";
  if (whole < 1) return `${Math.round(whole * 1000)} ms`;
  if (whole < 10) return `${trim(whole.toFixed(1))} s`;
  const s = Math.round(whole);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${pad(s % 60)} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${pad(minutes % 60)} min`;
  const hours = Math.round(s / 3600);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** The same, to one unit: for narrow cells. "4 s", "2 min", "3 h", "2 d". */
export function shortDuration(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 86_400) return `${trim((s / 3600).toFixed(1))} h`;
  return `${trim((s / 86_400).toFixed(1))} d`;
}

/** "just now", "12 s ago", "5 min ago". */
export function ago(time: number, now: number): string {
  const seconds = now - time;
  return seconds < 3 ? "just now" : `${shortDuration(seconds)} ago`;
}

/** 1,234 */
export function count(value: number): string {
  return Math.round(value).toLocaleString("en");
}

/** Four digits that matter: 0.03412, 12.35, 1,234, 12.3k, 4.56M. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e9) return `${trim((value / 1e9).toFixed(2))}G`;
  if (size >= 1e6) return `${trim((value / 1e6).toFixed(2))}M`;
  if (size >= 10_000) return `${trim((value / 1e3).toFixed(1))}k`;
  if (size >= 1000) return count(value);
  if (size < 0.0001) return value.toExponential(2);
  return trim(value.toPrecision(4));
}

export function percent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

/** "512 B", "1.5 KiB", "3.2 GiB" */
export function bytes(value: number): string {
  let rest = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (rest < 1024) return `${unit === "B" ? rest : trim(rest.toFixed(1))} ${unit}`;
    rest /= 1024;
  }
  return `${trim(rest.toFixed(1))} TiB`;
}

/** 14:03:22, here. */
export function clock(time: number): string {
  const date = new Date(time * 1000);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(pad).join(":");
}

/** 21 Nov 14:03:22, here; with the year where it is not this one. */
export function dateTime(time: number, now: number = Date.now() / 1000): string {
  const date = new Date(time * 1000);
  const year = date.getFullYear() === new Date(now * 1000).getFullYear() ? "" : ` ${date.getFullYear()}`;
  return `${date.getDate()} ${MONTHS[date.getMonth()] ?? ""}${year} ${clock(time)}`;
}

/** 2026-11-21 13:03:22 UTC */
export function utc(time: number): string {
  return `${new Date(time * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** "1 slot", "3 slots" */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A clause of the API's as a sentence of its own: "It is gone." of "it is gone" */
export function sentence(clause: string): string {
  return `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`;
}

/** A whole number from 1, or from `least`, as somebody typed it; null: it is none. */
export function wholeNumber(typed: string, least = 1): number | null {
  return /^[0-9]{1,10}$/.test(typed) && Number(typed) >= least ? Number(typed) : null;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

function pad(value: number): string {
  return String(value).padStart(2, "0");
}

function trim(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** How far something is, in whole percent, cut: 100 % is all. */
export function percentDone(share: number): string {
  return `${Math.floor(share * 100 + 1e-9)} %`;
}
