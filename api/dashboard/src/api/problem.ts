/** What the API refuses, as one kind of error. Reads RFC 9457 bodies and WMLA's plain text. */

export class Problem extends Error {
  override readonly name = "Problem";

  constructor(
    /** HTTP status; 0: no answer came. */
    readonly status: number,
    readonly title: string,
    /** A sentence: what was wrong with what. */
    readonly detail: string,
    /** Stable, for programs; empty where the answer had none. */
    readonly code = "",
  ) {
    super(detail || title);
  }

  /** Asking again may help: nothing was wrong with the question. */
  get passing(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/**
 * What is wrong with each field of a form. The API names fields as "quota: …; weight: …"; `names` are those of the form.
 * Empty: the problem is not about a field.
 */
export function byField<Name extends string>(problem: Problem, names: readonly Name[]): Partial<Record<Name, string>> {
  const found: Partial<Record<Name, string>> = {};
  const begins = new RegExp(`(?:^|; )(?=(?:${names.join("|")}): )`);
  for (const part of problem.detail.split(begins)) {
    const name = names.find((each) => part.startsWith(`${each}: `));
    if (name !== undefined) found[name] = part.slice(name.length + 2);
  }
  return found;
}

/** The problem that an answer tells; `body` is its JSON, or its text. */
export function problemOf(status: number, body: unknown): Problem {
  if (typeof body === "object" && body !== null) {
    const fields = body as Record<string, unknown>;
    const text = (name: string): string => (typeof fields[name] === "string" ? fields[name] : "");
    return new Problem(status, text("title") || titleOf(status), text("detail"), text("code"));
  }
  return new Problem(status, titleOf(status), typeof body === "string" ? body.trim().slice(0, 2000) : "");
}

/** Whatever was thrown, as a problem. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof TypeError) {
    return new Problem(0, "The API does not answer", "It may be restarting. This page asks again by itself.");
  }
  return new Problem(-1, "Something went wrong on this page", error instanceof Error ? error.message : String(error));
}

function titleOf(status: number): string {
  switch (status) {
    case 401:
      return "Not logged in";
    case 403:
      return "Not allowed";
    case 404:
      return "Not found";
    default:
      return status >= 500 ? "The API cannot answer now" : "The API refused this";
  }
}
