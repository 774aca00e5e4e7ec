"""Errors of a training, how its processes end, and whose fault that is.

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

The supervisor learns how a process ended from the exit status, or from the signal that ended it. A signal that a
process's own instructions raise is its script's doing. Any other came from outside: a spot machine is reclaimed, an
operator kills, a container is stopped. The kernel's kill for want of memory looks like one from outside and is none
(``supervisor.engines``).
"""

from __future__ import annotations

import enum
import operator
import os
import re
import signal
from collections.abc import Iterator
from typing import Any

from edt_contract.reports import ExitKind

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


class ExitStatus(enum.IntEnum):
    """How an engine or a driver has ended, where that is more than success or failure."""

    LEFT = 72
    """An engine has left the training, which goes on. It may have been asked to by SIGTERM alone, which its
    supervisor does not see."""
    SUSPENDED = 73
    """A driver has ended because all engines have left; the coordinator tells the supervisor so too."""
    PEER_LOST = 74
    """Another process of the training was lost, and this one cannot go on without it."""
    PULL_FAILED = 75
    """A joining engine did not get the weights in time, as often as EDT_PULL_FAILED_LIMITS allows and once more."""
    NO_TRAINING = 76
    """An engine's script came to its end without calling train(): a plain script, or an error if its driver does
    train."""
    HELPER_LOST = 77
    """A loader process was ended by a signal that came from outside, or for want of memory."""
    HELPER_CRASHED = 78
    """A loader process ended by itself: by a signal of CRASHES, or by an exit of its own."""
    TERMINATED = 79
    """A driver was ended by a SIGTERM from outside."""
    NO_ROOM = 80
    """An engine could not write the trained model: the disk is full. That is not the script's doing, so another attempt
    follows."""


CRASHES = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGABRT,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)
"""Signals that a process's own instructions raise."""
_HELPER_CRASHED = re.compile(
    rf"killed by signal: ({'|'.join(filter(None, map(signal.strsignal, sorted(CRASHES))))})|unexpectedly with exit code"
)
"""Part of what torch says when a loader process has crashed."""
EXIT_STATUSES: dict[ExitKind, int] = {
    ExitKind.FINISHED: 0,
    ExitKind.LEFT: ExitStatus.LEFT,
    ExitKind.PULL_FAILED: ExitStatus.PULL_FAILED,
    ExitKind.LOST: ExitStatus.PEER_LOST,
}
"""Exit status of an engine by how the training has ended for it."""
_KINDS: dict[int, ExitKind] = {
    **{status: kind for kind, status in EXIT_STATUSES.items()},
    **dict.fromkeys(
        (ExitStatus.HELPER_LOST, ExitStatus.HELPER_CRASHED, ExitStatus.TERMINATED, ExitStatus.NO_ROOM), ExitKind.LOST
    ),
    ExitStatus.NO_TRAINING: ExitKind.FINISHED,
}


def exit_kind(status: int, *, leaving: bool) -> ExitKind:
    """The kind of an engine's end.

    Args:
        status: its exit status; of an engine that a signal ended there is none.
        leaving: whether it was asked to leave.
    """
    if status == 0 and leaving:
        return ExitKind.LEFT
    return _KINDS.get(status, ExitKind.SCRIPT_ERROR)


def status_of_lost_helper(error: BaseException) -> ExitStatus:
    """Exit status of an engine that ends because one of its loader processes has (``is_lost_helper``)."""
    crashed = any(_HELPER_CRASHED.search(str(found)) for found in chain_of(error))
    return ExitStatus.HELPER_CRASHED if crashed else ExitStatus.HELPER_LOST


def blames_the_script(status: int | None, number: int | None, *, oom: bool, hung: bool) -> bool:
    """Whether an engine's end counts against the micro-batch that it was computing.

    Args:
        status: its exit status; None: a signal ended it.
        number: of that signal.
        oom: it, or a loader process of it, was killed for want of memory.
        hung: its supervisor killed it because the micro-batch took far too long.
    """
    if oom or hung:
        return True
    if number is not None:
        return number in CRASHES
    return status not in (ExitStatus.PEER_LOST, ExitStatus.PULL_FAILED, ExitStatus.HELPER_LOST, ExitStatus.LEFT)


def how_it_ended(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    if os.WEXITSTATUS(status) == ExitStatus.TERMINATED:
        return f"signal {signal.SIGTERM}"
    return f"exit status {os.WEXITSTATUS(status)}"
