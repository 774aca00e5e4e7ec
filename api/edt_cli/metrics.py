"""The metrics and the speed of a job, as a terminal shows them. Pure.

Each metric stands under its own name, as the script and the API have it. A value that is no finite number is "nan".
"""

from __future__ import annotations

from collections.abc import Mapping

from edt_api.schemas.jobs import Job
from edt_api.schemas.step_times import StepTimes

_MOST_SHOWN = 8
"""The most metrics in one line; more would fill the screen."""

_LONGEST_NAME = 16
"""Characters of a metric's name in a list. A longer one would push the value out of a narrow terminal."""


def main(job: Job) -> str:
    """The job's metric for a list: its name, cut where it is long, and its newest value; "" before the first report."""
    shown = job.main_metric
    if shown is None:
        return ""
    name = shown.name if len(shown.name) <= _LONGEST_NAME else f"{shown.name[: _LONGEST_NAME - 1]}…"
    return f"{name} {_number(shown.value)}"


def training(job: Job) -> str:
    """The newest metrics of the training, over its epoch so far; "" before the first report."""
    metrics = job.progress.get("metrics") or {}
    if not metrics and "loss" in job.progress:
        metrics = {"loss": job.progress["loss"]}
    return _line(metrics)


def validation(job: Job) -> str:
    """The newest validation, and after which epoch it was; "" if there was none."""
    newest = job.validation
    return _line(newest.metrics) + _when(newest.epoch, newest.step) if newest is not None else ""


def best(job: Job) -> str:
    """The best value of each metric of the validations, and from which epoch it is; "" if there is none."""
    found = [f"{name} {_number(each.value)}{_when(each.epoch, each.step)}" for name, each in job.best.items()]
    return _cut(found)


def best_model(job: Job) -> str:
    """The model that is kept as the best; "" if none is."""
    kept = job.best_model
    if kept is None:
        return ""
    where = f", kept as {kept.file}" if kept.file else ""
    return f"{kept.metric} {_number(kept.value)}{_when(kept.epoch, kept.step)}{where}"


def speed(job: Job) -> str:
    """Samples per second of training: now, and the mean of all steps; "" if they are not known."""
    now, mean = job.progress.get("samples_per_second"), job.mean_samples_per_second
    if job.state.over:
        rate = mean if mean is not None else now
        return f"{_rate(rate)} samples/s in the mean" if rate is not None else ""
    shown = f"{_rate(now)} samples/s" if now is not None else ""
    return f"{shown}, {_rate(mean)} in the mean" if shown and mean is not None else shown


def efficiency(times: StepTimes) -> str:
    """How much of a step is forward and backward pass, and how long a step takes; "" if it is not known."""
    if times.efficiency is None or times.step_seconds is None:
        return ""
    return f"{100 * times.efficiency:.0f} % of a step ({_span(times.step_seconds)}) is forward and backward pass"


def _span(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{1000 * seconds:.3g} ms"


def _line(metrics: Mapping[str, float | None]) -> str:
    return _cut([f"{name} {_number(value)}" for name, value in metrics.items()])


def _cut(parts: list[str]) -> str:
    more = len(parts) - _MOST_SHOWN
    return ", ".join(parts[:_MOST_SHOWN]) + (f" and {more} more: -o json" if more > 0 else "")


def _when(epoch: int | None, step: int | None) -> str:
    if epoch is not None:
        return f" (epoch {epoch})"
    return f" (step {step})" if step is not None else ""


def _number(value: float | None) -> str:
    """Four digits that matter."""
    return "nan" if value is None else f"{value:.4g}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
