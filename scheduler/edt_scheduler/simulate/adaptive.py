"""The platform's own policy where batches may change with the number of GPUs, which is the setting of Pollux."""

from __future__ import annotations

import math
from dataclasses import replace

from edt_scheduler.plan.state import Job
from edt_scheduler.plan.worth import Weights
from edt_scheduler.simulate.goodput import StepModel, best_batch
from edt_scheduler.simulate.platform import Platform
from edt_scheduler.simulate.training import Training

_Seen = dict[tuple[int, int, int], tuple[float, float]]


class Adaptive(Platform):
    """``plan`` as a policy of the simulator, told the goodput of each size instead of step times.

    The batch of a job is the one with the highest goodput on the GPUs that it has. Arguments are those of ``Platform``.
    """

    def __init__(
        self, pause: float = 30.0, *, known: bool = True, remembers: bool = True, weights: Weights | None = None
    ) -> None:
        super().__init__(pause, known=known, remembers=remembers, weights=weights)
        self.split = self._choose
        self._of_application: dict[str, _Seen] = {}
        self._gradients: dict[str, tuple[float, float]] = {}
        self._models: dict[str, tuple[tuple[int, int], StepModel]] = {}
        self._goodputs: dict[tuple[str, StepModel, tuple[float, float]], dict[int, float]] = {}

    def _job(self, place: int, job: Training, gpus: tuple[int, ...]) -> Job:
        seen = super()._job(place, job, gpus)
        if not job.is_adaptive:
            return seen
        application = job.application
        left = (application.progress[-1] - job.progress) * job.estimate if self._known else None
        seen = replace(seen, max=min(self._gpus, application.most_gpus()), points=(), steps_left=left)
        seen = replace(seen, allowed=self._sizes(seen.max))
        model, gradient = self._model(job), self._gradient(job)
        if model is None or gradient is None:
            return seen
        costly = self._weights.is_costly(self._pause)
        most = model.largest * self._weights.growth if costly else math.inf
        known = self._goodputs.setdefault((application.name, model, gradient), {})
        for size in {1, *seen.allowed, len(gpus)} - {0} - known.keys():
            best = best_batch(application, model, gradient, size)
            known[size] = best[0] if best else 0.0
        speeds = {
            size: known[size] / known[1]
            for size in sorted({*seen.allowed, len(gpus)} - {0})
            if known[size] and (size <= most or size in {len(gpus), seen.allowed[0]})
        }
        seconds = None if left is None else left / known[1]
        return replace(seen, speeds=tuple(speeds.items()), steps_left=seconds)

    def _choose(self, job: Training, gpus: int) -> tuple[int, int]:
        """The batch of one pass, and the passes before the last one, of a job that has so many GPUs."""
        application = job.application
        model, gradient = self._model(job), self._gradient(job)
        best = best_batch(application, model, gradient, gpus) if model and gradient else None
        if best is None:
            return application.split(max(application.initial_batch, application.min_local * gpus), gpus)
        return best[1], best[2]

    def _model(self, job: Training) -> StepModel | None:
        shared = self._of_application.setdefault(job.application.name, {}) if self._remembers else {}
        for key, times in job.seen.items():
            shared.setdefault(key, times)
        counts = len(job.seen), len(shared)
        kept = self._models.get(job.name)
        if kept is not None and kept[0] == counts:
            return kept[1]
        seen = {**shared, **job.seen}
        if not seen:
            return None
        self._models[job.name] = counts, StepModel.fit(seen)
        return self._models[job.name][1]

    def _gradient(self, job: Training) -> tuple[float, float] | None:
        """What was measured of its gradient last, or what was measured of an earlier job's after its first epoch."""
        if job.epoch and job.gradient is not None:
            self._gradients.setdefault(job.application.name, job.gradient)
        earlier = self._gradients.get(job.application.name) if self._remembers else None
        return job.gradient or earlier
