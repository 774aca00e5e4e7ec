/** The metrics of a job, each with what its training and its validations told of it. Pure. */

import type { Job } from "../../../api/types";
import { number } from "../../../components/format";
import { otherMetrics, validationName, withoutValidation } from "../words";

export interface MetricFact {
  readonly name: string;
  /** The training's newest value; null: it is not a number, undefined: the training has none of this name. */
  readonly trained: number | null | undefined;
  /** The newest validation's value; undefined: there is none. */
  readonly validated: number | null | undefined;
  /** "best 0.98, epoch 7"; empty: there is none. */
  readonly best: string;
}

/** All metrics of a job, the loss first. */
export function metricsOf({ progress, validation, best }: Pick<Job, "progress" | "validation" | "best">): readonly MetricFact[] {
  const trained = new Map<string, number | null | undefined>([["loss", progress.loss], ...otherMetrics(progress.metrics ?? {})]);
  const validated = validation?.metrics ?? {};
  const names = new Set([...trained.keys(), ...Object.keys(validated).map(withoutValidation)]);
  return [...names].map((name) => {
    const found = best[validationName(name)];
    return {
      name,
      trained: trained.get(name),
      validated: validated[validationName(name)],
      best: found ? `best ${number(found.value)}${found.epoch == null ? "" : `, epoch ${found.epoch}`}` : "",
    };
  });
}

/** The model that is kept as the best, in words; null: none is. */
export function bestModelWords({ best_model }: Pick<Job, "best_model">): string | null {
  if (best_model === null) return null;
  const { metric, value, epoch, file } = best_model;
  return [`${metric} ${number(value)}`, epoch == null ? "" : `epoch ${epoch}`, file ? `kept as ${file}` : ""].filter(Boolean).join(", ");
}
