"""Checks of a user's arguments. Each error names the argument, the value it got, and the values it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from edt_runner.errors import UsageError
from edt_runner.frameworks.options import StepOptions


def usage(name: str, got: object, takes: str) -> UsageError:
    """Make an error in the form that all these errors have."""
    return UsageError(f"{name}: got {_describe(got)}, takes {takes}")


def check_callable(name: str, value: object) -> None:
    """Check that an argument is a function.

    Raises:
        UsageError: the argument is no function.
    """
    if not callable(value):
        raise usage(name, value, "a function")


def check_count(name: str, value: object, *, least: int) -> int:
    """Check that an argument is a whole number, and return it.

    Raises:
        UsageError: the argument is no whole number, or is less than ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise usage(name, value, f"a whole number, at least {least}")
    return value


def check_seconds(name: str, value: object) -> None:
    """Check that an argument is a number of seconds.

    Raises:
        UsageError: the argument is no finite number above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise usage(name, value, "a number of seconds above 0")


def step_options(
    lr_scheduler: Any,
    interval: object,
    metric: object,
    *,
    clip_grad_norm: object,
    clip_grad_value: object,
    precision: object,
    compile: object,  # noqa: A002 - the name of train()'s argument
) -> StepOptions:
    """Check the arguments of ``train()`` that set how passes compute and how steps are taken.

    Raises:
        UsageError: an argument is wrong.
    """
    if interval not in ("epoch", "step"):
        raise usage("lr_scheduler_interval", interval, "'epoch' or 'step'")
    if not isinstance(metric, str):
        raise usage("lr_scheduler_metric", metric, "the name of a metric, such as 'val_loss'")
    limits = {"clip_grad_norm": clip_grad_norm, "clip_grad_value": clip_grad_value}
    for name, limit in limits.items():
        if limit is not None:
            _check_positive(name, limit)
    if precision not in ("fp32", "bf16", "fp16"):
        raise usage("precision", precision, "'fp32', 'bf16' or 'fp16'")
    if not isinstance(compile, bool):
        raise usage("compile", compile, "True or False")
    found: dict[str, Any] = {name: float(cast(float, limit)) for name, limit in limits.items() if limit is not None}
    return StepOptions(
        precision=precision,
        compile=compile,
        lr_scheduler=lr_scheduler,
        lr_scheduler_interval=interval,
        lr_scheduler_metric=metric,
        **found,
    )


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise usage(name, value, "a number above 0, or None")


def comparing(compare_interval: object, on_mismatch: object, require_exact: object, reduction: object) -> None:
    """Check the arguments that set how a result is kept exact, and when engines are compared.

    Raises:
        UsageError: an argument is wrong, or two arguments contradict each other.
    """
    if reduction not in ("exact", "fast"):
        raise usage("reduction", reduction, "'exact' or 'fast'")
    if compare_interval is not None:
        takes = "None (each epoch's end), a whole number of steps, or 0 (never)"
        if isinstance(compare_interval, bool) or not isinstance(compare_interval, int) or compare_interval < 0:
            raise usage("compare_interval", compare_interval, takes)
    if on_mismatch not in ("mark", "stop", "restore"):
        raise usage("on_mismatch", on_mismatch, "'mark', 'stop' or 'restore'")
    if not isinstance(require_exact, bool):
        raise usage("require_exact", require_exact, "True or False")
    if require_exact and reduction != "exact":
        raise usage("require_exact", require_exact, f"False with reduction={reduction!r}, whose result is not exact")


def auditing(audit_interval: object) -> None:
    """Check how often a micro-batch is computed by two engines.

    Raises:
        UsageError: the argument is wrong.
    """
    if audit_interval is not None:
        takes = "None (once a minute), a whole number of training steps, or 0 (never)"
        if isinstance(audit_interval, bool) or not isinstance(audit_interval, int) or audit_interval < 0:
            raise usage("audit_interval", audit_interval, takes)


_RUNS = "no effect, because the job already runs with what it was submitted with"
_WITHOUT_EFFECT = {
    "scaleup_function": "never called: the scheduler decides how many engines share a step, and the most are "
    "engines_number and the job's --numWorker",
    "worker_memory": _RUNS,
    "driver_memory": _RUNS,
    "hardware_spec": _RUNS,
}
"""Arguments of WMLA that are accepted, and why they have no effect."""


def without_effect(given: Mapping[str, object]) -> list[str]:
    """Say of each argument that has no effect why, if the user gave it.

    Args:
        given: name -> value; None and False count as not given.

    Returns:
        Sentences for the job's log.
    """
    return [f"{name}: {_WITHOUT_EFFECT[name]}." for name, value in given.items() if value not in (None, False)]


def engines(engines_number: int | None, worker_num: object, worker_device_num: object) -> int | None:
    """The number of engines that the user names: engines_number, or else worker_num x worker_device_num.

    Raises:
        UsageError: a number of workers or of their devices is no whole number above 0.
    """
    counts = {"worker_num": worker_num, "worker_device_num": worker_device_num}
    found = [check_count(name, value, least=1) for name, value in counts.items() if value is not None]
    return math.prod(found) if engines_number is None and worker_num is not None else engines_number


def micro_batches(engines_number: int | None, effective_batch_size: int | None, batch_size: int) -> int | None:
    """E, the number of micro-batches of a step, by WMLA's rule.

    Args:
        engines_number: as in ``FabricModel.train``.
        effective_batch_size: samples of the global batch, or None.
        batch_size: samples of one micro-batch.

    Returns:
        E; None: as many as slots are offered.

    Raises:
        UsageError: a number is no whole number above 0, or the effective batch is no multiple of ``batch_size``.
    """
    if engines_number is not None:
        check_count("engines_number", engines_number, least=1)
    if effective_batch_size is None:
        return engines_number
    check_count("effective_batch_size", effective_batch_size, least=1)
    parts, rest = divmod(effective_batch_size, batch_size)
    if rest:
        near = [value for value in (parts * batch_size, (parts + 1) * batch_size) if value]
        raise usage(
            "effective_batch_size",
            effective_batch_size,
            f"a multiple of batch_size {batch_size}; the nearest are {' and '.join(map(str, near))}",
        )
    return max(parts, engines_number or 0)


def reference_batch(engines_number: int | None, effective_batch_size: int | None, batch_size: int) -> int:
    """How many samples the batch has that the optimizer's learning rate was chosen for."""
    if effective_batch_size is None:
        return (engines_number or 1) * batch_size
    return check_count("effective_batch_size", effective_batch_size, least=1)


def _describe(value: object) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"{type(value).__module__}.{type(value).__qualname__}"
