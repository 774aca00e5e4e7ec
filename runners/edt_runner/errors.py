"""What can go wrong in a runner, and whose fault it is. Room: runners; standard library only.

RunnerError
├── UsageError          the user's call is wrong: names the argument, what it got and what it takes
├── DatasetMismatch     an engine's data differ from the driver's
├── PeerLost            another process of the training ended in the middle of something
├── HelperLost          a process that only this one uses was ended, a loader for example
├── StateMismatch       weights or optimizer state do not fit the model they are meant for
├── UnsupportedState    optimizer state that cannot be carried to another engine
├── CheckpointError     a recovery checkpoint that is torn, foreign, unreadable or not to be written any more
├── NoRoom              the trained model could not be written: no room on the disk, for too long
├── RecordError         a sample record that shows a step committed in two ways
└── Suspended           all engines have left; no error, the training goes on from its checkpoint

TrainingFailed is a SystemExit: the traceback has been shown by then, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LOADER_DIED = re.compile(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)")


class RunnerError(Exception):
    """Base of all errors a runner raises on purpose."""


class UsageError(RunnerError, ValueError):
    """A wrong argument, found before the first step."""


class DatasetMismatch(RunnerError):
    """An engine's data set has another length or another probe sample than the driver's."""


class PeerLost(RunnerError):
    """A process that this one was exchanging data with ended or hung."""


class HelperLost(RunnerError):
    """A loader process of this engine has ended."""


def is_lost_helper(error: BaseException) -> bool:
    """Whether this came of a loader process that has ended. torch has no class of its own for it, and raises it out of
    a signal handler, so wherever this process happens to be."""
    return any(
        isinstance(found, HelperLost) or (isinstance(found, RuntimeError) and _LOADER_DIED.search(str(found)))
        for found in chain_of(error)
    )


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came of."""
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


class RecordError(RunnerError):
    """A sample record that says what must never happen: one step was committed in two ways."""


class Suspended(RunnerError):
    """All engines have left; the training goes on from its checkpoint when the same command is run again."""


class TrainingFailed(SystemExit):
    """The training ended in an error that has been shown; the process should end with this status."""

    def __init__(self, message: str) -> None:
        super().__init__(1)
        self.message = message

    def __str__(self) -> str:
        return self.message
