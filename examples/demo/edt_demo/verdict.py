"""What was promised, what was seen, and the exit status that follows. Room: examples; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edt_demo.exits import ExitCode

_GRAVEST_FIRST = (ExitCode.TRAINING, ExitCode.SAMPLES, ExitCode.DIGEST, ExitCode.ACCURACY, ExitCode.RESIZES)


@dataclass(frozen=True)
class Check:
    """One promise."""

    code: ExitCode
    """Exit status where it was not kept."""
    promise: str
    seen: str
    kept: bool


def exit_code(checks: Sequence[Check]) -> ExitCode:
    """The status of the gravest promise that was not kept."""
    broken = {check.code for check in checks if not check.kept}
    return next((code for code in _GRAVEST_FIRST if code in broken), max(broken, default=ExitCode.OBSERVED))
