"""Exit statuses by which an engine tells its supervisor how it ended. Room: runners; standard library only."""

from __future__ import annotations

from edt_runner.contract import ExitKind

PEER_LOST = 74
PULL_FAILED = 75
NO_TRAINING = 76
"""An engine's script ended without calling train()."""


def exit_kind(status: int, *, leaving: bool) -> ExitKind:
    """Kind of an engine's end by its exit status (never of one that a signal ended)."""
    if status == 0:
        return ExitKind.LEFT if leaving else ExitKind.FINISHED
    return {PEER_LOST: ExitKind.LOST, PULL_FAILED: ExitKind.PULL_FAILED}.get(status, ExitKind.SCRIPT_ERROR)
