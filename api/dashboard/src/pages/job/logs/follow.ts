/**
 * Reads a log and goes on reading as it grows, through restarts of the API: the next question is always for the byte
 * after the last one received.
 */

import { useEffect, useReducer, useRef } from "react";

import { ask } from "../../../api/client";
import { asProblem, type Problem } from "../../../api/problem";
import { LogTail } from "./tail";

const GROWS_MS = 300;
/** How long the API may hold a question about a log that does not grow. It holds none of a job that is over. */
const HELD_SECONDS = 5;
const OVER_MS = 10_000;
const BROKEN_MS = 1_200;
const OFFSET = "Edt-Log-Offset";

export type Phase = "reading" | "following" | "reconnecting" | "ended" | "refused";

export interface Followed {
  readonly tail: LogTail;
  readonly phase: Phase;
  readonly problem: Problem | null;
}

/** Follow one file of a job's log from a byte on. Another file, or another byte, begins anew. */
export function useLog(id: string, stream: string, start: number, over: boolean): Followed {
  const [, show] = useReducer((count: number) => count + 1, 0);
  const ended = useRef(over);
  useEffect(() => {
    ended.current = over;
  }, [over]);
  const name = `${id} ${stream} ${start}`;
  const held = useRef<{ name: string; followed: Followed } | null>(null);
  if (held.current?.name !== name) {
    held.current = { name, followed: { tail: new LogTail(start), phase: "reading", problem: null } };
  }

  useEffect(() => {
    const mine = held.current;
    if (!mine) return undefined;
    const stopping = new AbortController();
    const change = (phase: Phase, problem: Problem | null): void => {
      if (stopping.signal.aborted) return;
      const grown = mine.followed.phase !== phase || mine.followed.problem !== problem;
      mine.followed = { ...mine.followed, phase, problem };
      if (grown) show();
    };
    void follow(mine.followed.tail, id, stream, stopping.signal, () => ended.current, change, show);
    return () => stopping.abort();
  }, [name, id, stream]);

  return held.current.followed;
}

async function follow(
  tail: LogTail,
  id: string,
  stream: string,
  signal: AbortSignal,
  over: () => boolean,
  change: (phase: Phase, problem: Problem | null) => void,
  show: () => void,
): Promise<void> {
  while (!signal.aborted) {
    let pause = GROWS_MS;
    try {
      const grew = await readOn(tail, id, stream, signal);
      const quiet = !grew && over();
      change(grew ? "reading" : quiet ? "ended" : "following", null);
      if (grew) show();
      else if (quiet) pause = OVER_MS;
      if (grew > 500_000) pause = 0; // more is waiting
    } catch (error) {
      if (signal.aborted) return;
      const problem = asProblem(error);
      change(problem.passing ? "reconnecting" : "refused", problem);
      if (!problem.passing) return;
      pause = BROKEN_MS;
    }
    await sleep(pause, signal);
  }
}

/** One question. An answer that breaks off half-way counts as none: the same byte is asked for again. */
async function readOn(tail: LogTail, id: string, stream: string, signal: AbortSignal): Promise<number> {
  const asked = tail.offset;
  const query = new URLSearchParams({ stream, offset: String(asked), wait: String(HELD_SECONDS) });
  const response = await ask(`/api/v1/jobs/${encodeURIComponent(id)}/log?${query}`, { signal });
  const bytes = new Uint8Array(await response.arrayBuffer());
  tail.feed(asked, bytes, Number(response.headers.get(OFFSET) ?? asked + bytes.length));
  return bytes.length;
}

/** A whole file, as the browser saves it. */
export async function wholeLog(id: string, stream: string): Promise<Blob> {
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  for (let offset = 0; ; ) {
    const query = new URLSearchParams({ stream, offset: String(offset) });
    const response = await ask(`/api/v1/jobs/${encodeURIComponent(id)}/log?${query}`);
    const bytes = new Uint8Array(await response.arrayBuffer());
    const after = Number(response.headers.get(OFFSET) ?? 0);
    if (bytes.length === 0) break;
    pieces.push(bytes);
    if (after <= offset) break; // turned over just now: what came is the old file's end
    offset = after;
  }
  return new Blob(pieces, { type: "text/plain" });
}

function sleep(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, milliseconds);
    signal.addEventListener("abort", done);
  });
}
