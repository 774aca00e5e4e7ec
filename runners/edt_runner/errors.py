"""Errors of a training, and whose fault they are.

RunnerError
├── UsageError          the user's call is wrong: names the argument, what it got and what it takes
├── DatasetMismatch     an engine's data differ from the driver's
├── PeerLost            another process of the training ended in the middle of something
├── HelperLost          a process that only this one uses was ended, a loader for example
├── StateMismatch       weights or optimizer state do not fit the model they are meant for
├── UnsupportedState    optimizer state that cannot be carried to another engine
├── CheckpointError     a recovery checkpoint that is torn, foreign, unreadable or not to be written any more
├── NoRoom              the trained model could not be written: no room on the disk, for too long
└── Suspended           all engines have left; no error, the training goes on from its checkpoint

TrainingFailed is a SystemExit: the traceback has been shown by then, once.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from typing import Any

_LOADER_DIED = re.compile(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)")


class RunnerError(Exception):
    """Base of all errors a runner raises on purpose."""


class UsageError(RunnerError, ValueError):
    """A wrong argument, found before the first step."""


def usage(name: str, got: object, takes: str) -> UsageError:
    """The error of an argument ``name``: what it got and what it takes."""
    return UsageError(f"{name}: got {got!r}, takes {takes}")


def whole(name: str, value: object, takes: str = "a whole number, at least 1") -> int:
    """The argument ``value`` as an int of at least 1. Raises UsageError where it is none."""
    number = whole_number(value)
    if number is None or number < 1:
        raise usage(name, value, takes)
    return number


def whole_number(value: Any) -> int | None:
    """An int of any library; a float never, even where it is whole: nothing says it was not cut off."""
    if isinstance(value, bool) or getattr(value, "ndim", None):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


class DatasetMismatch(RunnerError):
    """An engine's data set has another length or another probe sample than the driver's."""


class PeerLost(RunnerError):
    """A process that this one was exchanging data with ended or hung."""


class HelperLost(RunnerError):
    """A loader process of this engine has ended."""


def is_lost_helper(error: BaseException) -> bool:
    """Whether an error means that a loader process has ended. torch has no class for it, and raises a RuntimeError from
    a signal handler, wherever this process is just then."""
    return any(
        isinstance(found, HelperLost) or (isinstance(found, RuntimeError) and _LOADER_DIED.search(str(found)))
        for found in chain_of(error)
    )


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """The error, its cause, that one's cause, and so on."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


class StateMismatch(RunnerError):
    """Received or stored state does not fit this model: names the tensor and both shapes."""


class UnsupportedState(RunnerError):
    """Optimizer state that is neither a tensor nor plain JSON."""


class CheckpointError(RunnerError):
    """A recovery checkpoint that cannot be used or written, and why."""


class NoRoom(RunnerError):
    """The trained model could not be written for want of room; the training is kept in its checkpoint."""


class Suspended(RunnerError):
    """All engines have left; the training goes on from its checkpoint when the same command is run again."""


class TrainingFailed(SystemExit):
    """The training ended in an error that has been shown; the process should end with this status."""

    def __init__(self, message: str) -> None:
        super().__init__(1)
        self.message = message

    def __str__(self) -> str:
        return self.message
