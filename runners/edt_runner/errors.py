"""The errors of a training, the exit statuses of its processes, and the rules that decide whether the script is to
blame.

RunnerError
├── UsageError          a wrong argument of the user; names the argument, the value and what is allowed
├── DatasetMismatch     an engine's data differ from the driver's
├── PeerLost            another process of the training ended or hung during an operation
├── HelperLost          a loader process of this process has ended
├── StateMismatch       weights or optimizer state do not fit the model
├── UnsupportedState    optimizer state that cannot be sent to another engine
├── CheckpointError     a recovery checkpoint that is incomplete, foreign or unreadable, or that cannot be written
├── NotFinite           a step's loss or gradient is infinite or not a number
├── NoRoom              the trained model could not be written: the disk was full for too long
└── Suspended           all engines have left; this is no error: the training can resume from its checkpoint

TrainingFailed is a SystemExit, because the traceback has been shown already.

The supervisor learns from the exit status, or from the signal, how a process ended. If a process's own instructions
raised the signal, the script is to blame. Every other signal came from outside: for example, a spot machine was
reclaimed, an operator killed the process, or a container was stopped. There is one exception: the kernel kills a
process when memory is short. That signal looks as if it came from outside, but it counts against the script
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
    """Base class of all errors that this package raises on purpose."""


class UsageError(RunnerError, ValueError):
    """A wrong argument, which is found before the first step."""


def usage(name: str, got: object, takes: str) -> UsageError:
    """Return the error for argument ``name``: it ``got`` one value and ``takes`` others."""
    return UsageError(f"{name}: got {got!r}, takes {takes}")


def whole(name: str, value: object, takes: str = "a whole number, at least 1") -> int:
    """Return the argument ``value`` as an int of at least 1.

    Args:
        name: name of the argument.
        value: an int of any library.
        takes: what the error says that the argument takes.

    Raises:
        UsageError: the value is not a whole number, or is less than 1.
    """
    number = whole_number(value)
    if number is None or number < 1:
        raise usage(name, value, takes)
    return number


def whole_number(value: Any) -> int | None:
    """Return ``value``, an int of any library, as an int; None: it is something else. A float is never accepted, even a
    whole one, because it may have been rounded."""
    if isinstance(value, bool) or getattr(value, "ndim", None):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


class DatasetMismatch(RunnerError):
    """An engine's data sets differ from the driver's in their lengths or in the first training sample."""


class PeerLost(RunnerError):
    """Another process, with which this process exchanged data, ended or hung."""


class HelperLost(RunnerError):
    """A loader process of this engine has ended."""


def is_lost_helper(error: BaseException) -> bool:
    """Return whether an error means that a loader process has ended. torch has no class for this error: it raises a
    RuntimeError from a signal handler, which may interrupt this process anywhere."""
    return any(
        isinstance(found, HelperLost) or (isinstance(found, RuntimeError) and _LOADER_DIED.search(str(found)))
        for found in chain_of(error)
    )


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, its cause, the cause of its cause, and so forth."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


class StateMismatch(RunnerError):
    """A received or stored state does not fit this model. The message names the tensor and both shapes, or what else
    differs."""


class UnsupportedState(RunnerError):
    """Optimizer state that is neither a tensor nor plain JSON."""


class CheckpointError(RunnerError):
    """A recovery checkpoint cannot be used or written. The message says why."""


class NotFinite(RunnerError):
    """A training step's loss or gradient is infinite or not a number, so the step was not taken.

    Args:
        loss: the step's loss.
        norm: the L2 norm of its gradient.
        learning_rate: the optimizer's learning rate; None: it has none.
        where: which step it is; empty until it is known.
    """

    def __init__(self, loss: float, norm: float, learning_rate: float | None, where: str = "") -> None:
        super().__init__(loss, norm, learning_rate, where)
        self.loss, self.norm, self.learning_rate, self.where = loss, norm, learning_rate, where

    def at(self, where: str) -> NotFinite:
        """Return this error with the place where it has occurred."""
        return NotFinite(self.loss, self.norm, self.learning_rate, where)

    def __str__(self) -> str:
        rate = "" if self.learning_rate is None else f", learning rate {self.learning_rate:g}"
        return f"{self.where or 'a step'}: loss {self.loss:g}, gradient norm {self.norm:g}{rate}"


class NoRoom(RunnerError):
    """The trained model could not be written because the disk is full. The training is kept in its checkpoint."""


class Suspended(RunnerError):
    """All engines have left. The training resumes from its checkpoint when the same command is run again."""


class TrainingFailed(SystemExit):
    """The training has failed, and the error has been shown. The process should end with exit status 1."""

    def __init__(self, message: str) -> None:
        super().__init__(1)
        self.message = message

    def __str__(self) -> str:
        return self.message


class ExitStatus(enum.IntEnum):
    """Exit statuses of an engine or a driver other than 0 (success) and 1 (failure)."""

    LEFT = 72
    """An engine has left the training, which continues. A SIGTERM may have been the only request to leave; the
    supervisor does not see that signal."""
    SUSPENDED = 73
    """A driver has ended because all engines have left. The coordinator sends the supervisor this information, too."""
    PEER_LOST = 74
    """Another process of the training was lost, and this process cannot continue without it."""
    PULL_FAILED = 75
    """A joining engine did not get the weights in time, once more often than EDT_PULL_FAILED_LIMITS allows."""
    NO_TRAINING = 76
    """An engine's script ended without a call of train(). That is an error only if the driver's script does train."""
    HELPER_LOST = 77
    """A signal from outside ended a loader process, or the kernel ended it because memory was short."""
    HELPER_CRASHED = 78
    """A loader process crashed with a signal in ``CRASHES``, or exited."""
    TERMINATED = 79
    """A SIGTERM from outside ended a driver."""
    NO_ROOM = 80
    """An engine could not write the trained model because the disk is full. The script is not to blame, so another
    attempt follows."""


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
"""Part of torch's message when a loader process has crashed."""
EXIT_STATUSES: dict[ExitKind, int] = {
    ExitKind.FINISHED: 0,
    ExitKind.LEFT: ExitStatus.LEFT,
    ExitKind.PULL_FAILED: ExitStatus.PULL_FAILED,
    ExitKind.LOST: ExitStatus.PEER_LOST,
}
"""The exit status of an engine for each kind of exit."""
_KINDS: dict[int, ExitKind] = {
    **{status: kind for kind, status in EXIT_STATUSES.items()},
    **dict.fromkeys(
        (ExitStatus.HELPER_LOST, ExitStatus.HELPER_CRASHED, ExitStatus.TERMINATED, ExitStatus.NO_ROOM), ExitKind.LOST
    ),
    ExitStatus.NO_TRAINING: ExitKind.FINISHED,
}


def exit_kind(status: int, *, leaving: bool) -> ExitKind:
    """Return the kind of an engine's exit. The engine has an exit status, so no signal ended it.

    Args:
        status: exit status of the engine.
        leaving: whether the engine was asked to leave.
    """
    if status == 0 and leaving:
        return ExitKind.LEFT
    return _KINDS.get(status, ExitKind.SCRIPT_ERROR)


def status_of_lost_helper(error: BaseException) -> ExitStatus:
    """Return the exit status of an engine that ends because one of its loader processes has ended. ``error`` is the
    error that it raised (``is_lost_helper``)."""
    crashed = any(_HELPER_CRASHED.search(str(found)) for found in chain_of(error))
    return ExitStatus.HELPER_CRASHED if crashed else ExitStatus.HELPER_LOST


def blames_the_script(status: int | None, number: int | None, *, oom: bool, hung: bool) -> bool:
    """Return whether an engine's end counts against the micro-batch that it was computing.

    Args:
        status: exit status of the engine; None: a signal ended it.
        number: number of that signal; None: no signal ended it.
        oom: whether the kernel killed the engine or one of its loader processes because memory was short.
        hung: whether the supervisor killed the engine because the micro-batch took far too long.
    """
    if oom or hung:
        return True
    if number is not None:
        return number in CRASHES
    return status not in (ExitStatus.PEER_LOST, ExitStatus.PULL_FAILED, ExitStatus.HELPER_LOST, ExitStatus.LEFT)


def how_it_ended(status: int) -> str:
    """Return a wait status, as ``os.waitpid`` returns it, in words."""
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    if os.WEXITSTATUS(status) == ExitStatus.TERMINATED:
        return f"signal {signal.SIGTERM}"
    return f"exit status {os.WEXITSTATUS(status)}"
