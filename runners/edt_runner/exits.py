"""Exit statuses by which an engine tells its supervisor how it ended. Room: runners; standard library only."""

from __future__ import annotations

from edt_runner.contract import ExitKind

SUSPENDED = 73
"""Of a driver: all engines have left; the supervisor has heard so from the coordinator, or will."""
PEER_LOST = 74
PULL_FAILED = 75
NO_TRAINING = 76
"""An engine's script came to its end without calling train(): a plain script, or an error if its driver does train."""


def exit_kind(status: int, *, leaving: bool) -> ExitKind:
    """Kind of an engine's end by its exit status (never of one that a signal ended)."""
    if status == 0:
        return ExitKind.LEFT if leaving else ExitKind.FINISHED
    kinds = {PEER_LOST: ExitKind.LOST, PULL_FAILED: ExitKind.PULL_FAILED, NO_TRAINING: ExitKind.FINISHED}
    return kinds.get(status, ExitKind.SCRIPT_ERROR)
