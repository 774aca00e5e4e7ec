/** The Jobs page's filter and the address that holds it. Pure. */

import type { JobFilter } from "../../api/keys";
import { JOB_STATES } from "../../api/types";

/** What an address asks for; words that it does not know are dropped. */
export function filterOf(search: URLSearchParams): JobFilter {
  const named = new Set((search.get("state") ?? "").split(","));
  return {
    states: JOB_STATES.filter((state) => named.has(state)),
    owner: (search.get("owner") ?? "").trim(),
    text: (search.get("q") ?? "").trim(),
  };
}

/** The address of a filter; what is not filtered by is not in it. */
export function searchOf(filter: JobFilter): Record<string, string> {
  return {
    ...(filter.text !== "" && { q: filter.text }),
    ...(filter.states.length > 0 && { state: filter.states.join(",") }),
    ...(filter.owner !== "" && { owner: filter.owner }),
  };
}

export function isEmpty(filter: JobFilter): boolean {
  return filter.states.length === 0 && filter.owner === "" && filter.text === "";
}

/** One state more, or one less; in the order in which a job passes through them. */
export function toggled(states: readonly string[], state: string): readonly string[] {
  const others = states.filter((each) => each !== state);
  return others.length < states.length ? others : JOB_STATES.filter((each) => each === state || states.includes(each));
}
