"""How a process of a training ended, and whether its script is to blame. Room: runners; pure, standard library only.

An engine tells its supervisor by its exit status; of one that a signal ended the signal tells. A signal that the
instructions of a process raise is its script's. Any other came from outside: a spot machine that is reclaimed, an
operator, a container that is stopped. The kernel's kill for want of memory looks like one from outside and is none
(``supervisor.memory``).
"""

from __future__ import annotations

import re
import signal

from edt_runner.contract import ExitKind
from edt_runner.errors import chain_of

LEFT = 72
"""Of an engine: it has left the training, which goes on. It may have been asked to by SIGTERM alone, of which its
supervisor knows nothing."""
SUSPENDED = 73
"""Of a driver: all engines have left; the supervisor has heard so from the coordinator, or will."""
PEER_LOST = 74
PULL_FAILED = 75
NO_TRAINING = 76
"""An engine's script came to its end without calling train(): a plain script, or an error if its driver does train."""
HELPER_LOST = 77
"""A loader process was ended by a signal that came from outside, or for want of memory."""
HELPER_CRASHED = 78
"""A loader process ended by itself: by a signal of CRASHES, or by an exit of its own."""
TERMINATED = 79
"""Of a driver: SIGTERM came from outside."""
NO_ROOM = 80
"""Of an engine: the disk does not take the trained model. No fault of the script's, so another attempt tries again."""

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
"""In torch's words on a loader process."""
STATUSES = {
    ExitKind.FINISHED: 0,
    ExitKind.LEFT: LEFT,
    ExitKind.PULL_FAILED: PULL_FAILED,
    ExitKind.LOST: PEER_LOST,
}
"""By which an engine tells how its training has ended for it."""
_LOST = frozenset({PEER_LOST, HELPER_LOST, HELPER_CRASHED, TERMINATED, NO_ROOM})


def exit_kind(status: int, *, leaving: bool) -> ExitKind:
    """Kind of an engine's end by its exit status (never of one that a signal ended)."""
    if status == 0:
        return ExitKind.LEFT if leaving else ExitKind.FINISHED
    if status in _LOST:
        return ExitKind.LOST
    kinds = {LEFT: ExitKind.LEFT, PULL_FAILED: ExitKind.PULL_FAILED, NO_TRAINING: ExitKind.FINISHED}
    return kinds.get(status, ExitKind.SCRIPT_ERROR)


def of_lost_helper(error: BaseException) -> int:
    """Exit status of an engine that ends because a loader process of it has (``errors.is_lost_helper``)."""
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
