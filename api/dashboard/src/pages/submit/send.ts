/** Hands a job in, with the upload's progress. By XMLHttpRequest, since fetch does not tell progress. */

import { ask } from "../../api/client";
import { problemOf } from "../../api/problem";
import type { Code } from "./code/code";
import { argsToSend, type Form } from "./form";

const EXECS = "/platform/rest/deeplearning/v1/execs";

/** How far it is: packing, then 0..1 of the bytes, then the answer is waited for. */
export type Progress = { readonly phase: "packing" | "answer" } | { readonly phase: "sending"; readonly share: number };

/**
 * Submit; gives the job's id or throws a Problem. `once` is the same for each try of the same form: where an answer
 * was lost on the way, trying again makes no second job.
 */
export async function send(form: Form, code: Code | null, once: string, onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<string> {
  onProgress({ phase: "packing" });
  const archive = code && (await code.archive());
  signal.throwIfAborted();
  const body = new FormData();
  body.set("data", JSON.stringify({ args: argsToSend(form, code) }));
  if (archive) body.set("file", archive.data, archive.name);
  const { status, text } = await post(body, once, onProgress, signal);
  if (status === 401) await ask("/api/v1/me"); // tells the whole page that the session has ended
  const answer = parsed(text);
  if (status !== 200) throw problemOf(status, answer);
  return (answer as { id: string }).id;
}

function post(body: FormData, once: string, onProgress: (progress: Progress) => void, signal: AbortSignal): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", EXECS);
    request.setRequestHeader("Accept", "application/json");
    request.setRequestHeader("Idempotency-Key", once);
    request.upload.onprogress = (event) => {
      if (event.lengthComputable) onProgress({ phase: "sending", share: event.loaded / event.total });
    };
    request.upload.onload = () => onProgress({ phase: "answer" });
    request.onload = () => resolve({ status: request.status, text: request.responseText });
    request.onerror = () => reject(problemOf(0, "The API does not answer, or broke off. Nothing was taken twice: try again."));
    request.onabort = () => reject(new DOMException("cancelled", "AbortError"));
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(body);
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
