"""Loggers of WMLA's two versions, behind one interface: that of 4.x, which the engine calls.

    1.2.x  driver_logger=, worker_logger=                     log_train_metrics(loss, acc, completed_batch, worker=0)
                                                              log_test_metrics(loss, acc, completed_batch, worker=0)
    4.x    driver_logger_callback=, worker_logger_callback=   log_train_metrics(metrics, iteration, epoch, workers)
                                                              log_test_metrics(metrics, iteration, epoch)

Both versions' loggers derive from one ``LoggerCallback``, and some of IBM's own samples pass a logger of one version by
the keyword of the other. So each method's parameters decide which version it is of; the keyword decides only if the
parameters do not.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from edt_runner import context
from edt_runner.errors import UsageError
from edt_runner.loggers import Logger, accuracy
from fabric_model.arguments import usage

_METHODS = {"log_train_metrics": 4, "log_test_metrics": 3}
"""Methods, and the number of arguments that 4.x passes. Version 1.2.x passes four to both."""
_OLD_ARGUMENTS = 4


class Family(enum.Enum):
    """The version of WMLA whose arguments a logger's method takes."""

    OLD = "1.2.x"
    NEW = "4.x"


def chosen(old_name: str, old: object, new_name: str, new: object) -> Logger | None:
    """The logger that the user gave by one of two keywords, with the interface of 4.x; None if there is none.

    Raises:
        UsageError: two loggers for one place, a class, or something that cannot be called as a logger.
    """
    if old is not None and new is not None:
        raise UsageError(f"{old_name} and {new_name}: got a logger for each, takes one: both are for the same place")
    if old is not None:
        return _logger(old_name, old, Family.OLD)
    return _logger(new_name, new, Family.NEW) if new is not None else None


def _logger(name: str, logger: Any, by_keyword: Family) -> Logger:
    if isinstance(logger, type):
        raise usage(name, logger, "an instance, not the class")
    missing = [method for method in _METHODS if not callable(getattr(logger, method, None))]
    if missing:
        raise usage(name, logger, f"a callbacks.LoggerCallback instance (it has no {', '.join(missing)})")
    families = {method: _family(name, getattr(logger, method), method, by_keyword) for method in _METHODS}
    hooks = all(callable(getattr(logger, hook, None)) for hook in ("on_train_begin", "on_train_end"))
    if hooks and Family.OLD not in families.values():
        found: Logger = logger
        return found
    return AnyLogger(logger, families)


class AnyLogger:
    """A logger with the interface of 4.x, around one whose methods may be of either version and which may lack hooks.

    A method of 1.2.x receives: the loss, as a float; the accuracy in percent, from the metric of that name or else from
    the first metric; completed batches, which are micro-batches over all engines in the driver and steps in an engine;
    and the worker, which is the engine's number, or 0 in the driver.
    """

    def __init__(self, logger: Any, families: Mapping[str, Family]) -> None:
        self._logger, self._families = logger, families
        self._completed = 0

    def on_train_begin(self) -> None:
        self._hook("on_train_begin")

    def on_train_end(self) -> None:
        self._hook("on_train_end")

    def _hook(self, name: str) -> None:
        hook = getattr(self._logger, name, None)
        if callable(hook):
            hook()

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        self._completed = iteration
        if self._families["log_train_metrics"] is Family.NEW:
            self._logger.log_train_metrics(metrics, iteration, epoch, workers)
        else:
            self._logger.log_train_metrics(*_old_arguments(metrics, iteration))

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        if self._families["log_test_metrics"] is Family.NEW:
            self._logger.log_test_metrics(metrics, iteration, epoch)
        else:
            self._logger.log_test_metrics(*_old_arguments(metrics, self._completed))


def _old_arguments(metrics: Mapping[str, float], completed: int) -> tuple[float, float, int, int]:
    role = context.current()
    worker = int(role.name) if role is not None and role.role == "engine" else 0
    return float(metrics["loss"]), 100.0 * accuracy(metrics), completed, worker


def _family(keyword: str, method: Callable[..., Any], name: str, by_keyword: Family) -> Family:
    """The version that a method is of: by the names of its parameters, or else by the keyword.

    Raises:
        UsageError: the method can take the arguments of neither version.
    """
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):
        return by_keyword
    first, second = [*(parameter.lower() for parameter in signature.parameters), "", ""][:2]
    arguments = {Family.OLD: _OLD_ARGUMENTS, Family.NEW: _METHODS[name]}
    takes = [family for family, count in arguments.items() if _can_take(signature, count)]
    if not takes:
        raise UsageError(
            f"{keyword}: {name}{signature} takes neither (loss, acc, completed_batch, worker) "
            f"nor ({', '.join(('metrics', 'iteration', 'epoch', 'workers')[: _METHODS[name]])})"
        )
    stated = Family.NEW if first.startswith("metric") else Family.OLD if second.startswith("acc") else by_keyword
    return stated if stated in takes else takes[0]


def _can_take(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
