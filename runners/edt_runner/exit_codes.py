"""How a process of a training ended, and whether its script is to blame.

The supervisor learns it from the exit status, or from the signal that ended the process. A signal that a process's own
instructions raise is its script's doing. Any other came from outside: a spot machine is reclaimed, an operator kills, a
container is stopped. The kernel's kill for want of memory looks like one from outside and is none
(``supervisor.engines``).
"""

from __future__ import annotations

import os
import re
import signal

from edt_contract.reports import ExitKind
from edt_runner.errors import chain_of

LEFT = 72
"""An engine has left the training, which goes on. It may have been asked to by SIGTERM alone, which its supervisor does
not see."""
SUSPENDED = 73
"""A driver has ended because all engines have left; the coordinator tells the supervisor so too."""
PEER_LOST = 74
"""Another process of the training was lost, and this one cannot go on without it."""
PULL_FAILED = 75
"""A joining engine did not get the weights in time, as often as EDT_PULL_FAILED_LIMITS allows and once more."""
NO_TRAINING = 76
"""An engine's script came to its end without calling train(): a plain script, or an error if its driver does train."""
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
STATUSES = {
    ExitKind.FINISHED: 0,
    ExitKind.LEFT: LEFT,
    ExitKind.PULL_FAILED: PULL_FAILED,
    ExitKind.LOST: PEER_LOST,
}
"""Exit status of an engine by how the training has ended for it."""
_KINDS = {
    **{status: kind for kind, status in STATUSES.items()},
    **dict.fromkeys((HELPER_LOST, HELPER_CRASHED, TERMINATED, NO_ROOM), ExitKind.LOST),
    NO_TRAINING: ExitKind.FINISHED,
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


def of_lost_helper(error: BaseException) -> int:
    """Exit status of an engine that ends because one of its loader processes has (``errors.is_lost_helper``)."""
    crashed = any(_HELPER_CRASHED.search(str(found)) for found in chain_of(error))
    return HELPER_CRASHED if crashed else HELPER_LOST


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
    return status not in (PEER_LOST, PULL_FAILED, HELPER_LOST, LEFT)


def how_it_ended(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    if os.WEXITSTATUS(status) == TERMINATED:
        return f"signal {signal.SIGTERM}"
    return f"exit status {os.WEXITSTATUS(status)}"
