"""Room: api, CLI. What `edt up` writes: each line with the part that speaks before it. Touches standard output
only."""

from __future__ import annotations

import errno
import os
import sys

_RESET = "\033[0m"
_COLOURS = {"up": "1", "api": "36", "scheduler": "35", "agent": "32", "broker": "33"}
_WIDTH = max(len(name) for name in _COLOURS)


class Console:
    """Lines to a terminal or a file; colour only for a terminal, and not where NO_COLOR says so."""

    def __init__(self) -> None:
        self._lost = 0
        """Lines that a full disk has not taken."""
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")

    def say(self, part: str, line: str) -> None:
        """One line. A terminal that is gone does not stop the platform, nor does a full disk with what it says."""
        name = f"{part:<{_WIDTH}}"
        prefix = f"\033[{_COLOURS[part]}m{name}{_RESET}" if self._colour else name
        missing = f"[{self._lost} lines are missing: the disk was full]\n" if self._lost else ""
        try:
            sys.stdout.write(f"{missing}{prefix} | {line}\n")
            sys.stdout.flush()
            self._lost = 0
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                self._lost += 1
                return
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123  it stays open for the rest of this process
