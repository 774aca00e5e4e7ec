/** Times in words, exact, for hover cards and tables. Reads the machine's time zone. */

import { clockLabel, dayLabel } from "./ticks";

/** `12:03:09`, with the day before it where that is not today's. */
export function timestamp(seconds: number, now = Date.now() / 1000): string {
  const time = new Date(seconds * 1000);
  const clock = clockLabel(time, true);
  return time.toDateString() === new Date(now * 1000).toDateString() ? clock : `${dayLabel(time)} ${clock}`;
}

/** The same in UTC, for titles. */
export function timestampUtc(seconds: number): string {
  return `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
