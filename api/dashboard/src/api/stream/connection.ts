/**
 * How the line to the API stands, as a person is told it. Room: dashboard, api. Pure.
 *
 * live: the stream is open and was heard in the last 15 seconds. reconnecting: it broke, the browser tries again.
 * stale: nothing was heard for 15 seconds, so what is shown may be old.
 */

export const STALE_AFTER_MS = 15_000;

export type Phase = "connecting" | "live" | "reconnecting" | "stale";

export interface Connection {
  readonly phase: Phase;
  /** When something was last heard, in milliseconds since the epoch; null: never yet. */
  readonly heardAt: number | null;
  /** When this page began to listen. */
  readonly since: number;
}

export function atFirst(now: number): Connection {
  return { phase: "connecting", heardAt: null, since: now };
}

/** Something came: an event, a beat. */
export function heard(_before: Connection, now: number): Connection {
  return { phase: "live", heardAt: now, since: _before.since };
}

/** The line broke. */
export function broken(before: Connection): Connection {
  return before.phase === "stale" ? before : { ...before, phase: "reconnecting" };
}

/** Time has passed. */
export function checked(before: Connection, now: number): Connection {
  const quiet = now - (before.heardAt ?? before.since);
  return quiet >= STALE_AFTER_MS && before.phase !== "stale" ? { ...before, phase: "stale" } : before;
}
