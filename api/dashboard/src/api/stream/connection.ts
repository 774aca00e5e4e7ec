/**
 * The state of the connection to the API, as the badge shows it. Pure.
 *
 * live: the stream is open and something came in the last 15 seconds. reconnecting: it broke, the browser tries again.
 * stale: nothing came for 15 seconds, so what is shown may be old.
 */

export const STALE_AFTER_MS = 15_000;

export type Phase = "connecting" | "live" | "reconnecting" | "stale";

export interface Connection {
  readonly phase: Phase;
  /** When something last came, in milliseconds since the epoch; null: never yet. */
  readonly receivedAt: number | null;
  /** When this page opened the stream. */
  readonly since: number;
}

export function atFirst(now: number): Connection {
  return { phase: "connecting", receivedAt: null, since: now };
}

/** Something came: an event, a beat. */
export function received(_before: Connection, now: number): Connection {
  return { phase: "live", receivedAt: now, since: _before.since };
}

/** The line broke. */
export function broken(before: Connection): Connection {
  return before.phase === "stale" ? before : { ...before, phase: "reconnecting" };
}

/** Time has passed. */
export function checked(before: Connection, now: number): Connection {
  const quiet = now - (before.receivedAt ?? before.since);
  return quiet >= STALE_AFTER_MS && before.phase !== "stale" ? { ...before, phase: "stale" } : before;
}
