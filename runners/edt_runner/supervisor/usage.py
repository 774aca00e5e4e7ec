"""How much its engines use, written where the agent of the node finds it. Room: runners; reads /proc, one file.

Only this process can say whose a process is wherever it runs: it is the parent, and in a container the agent would not
even know its pids. The file is a level: each replaces the one before, and nobody waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edt_runner import processes
from edt_runner.contract import USAGE_FILE, Letter, SlotWish

_LOOK_SECONDS = 5.0


class Meter:
    """``look`` may be called at any time; it measures now and then."""

    def __init__(self, letter: Letter) -> None:
        self._place = Path(letter.spool_dir) / USAGE_FILE
        self._due = 0.0
        self._written: Mapping[str, Any] = {}

    def look(self, now: float, engines: Mapping[int, SlotWish]) -> None:
        """Measure the engines, by pid, and what they have started. ``now`` is the machine's monotonic clock."""
        if now < self._due or not (engines or self._written):
            return
        self._due = now + _LOOK_SECONDS
        used = processes.used_below(engines)
        self._written = {
            str(slot.allocation): {
                "slot": slot.slot,
                "cpu_seconds": round(used[pid].cpu_seconds, 2),
                "rss_bytes": used[pid].rss_bytes,
            }
            for pid, slot in engines.items()
            if pid in used
        }
        draft = self._place.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # a full disk, say: that is told by others
            with open(draft, "w", opener=_open) as file:
                json.dump({"time": now, "engines": self._written}, file)
            draft.replace(self._place)


def _open(path: str, flags: int) -> int:
    """Wait for nobody, follow nothing: the job's own processes may have put a pipe or a link there."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
