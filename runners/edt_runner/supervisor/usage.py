"""Reads from /proc how much the processes of an attempt use."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edt_contract import processes
from edt_contract.attempt import USAGE_FILE, AttemptSpec, DesiredSlot
from edt_contract.durable import write_whole

_MEASURE_SECONDS = 5.0


class UsageMeter:
    """Writes into a file (``USAGE_FILE``) how much the engines use. The node's agent reads it.

    Only the supervisor knows which process belongs to which engine, because it is the parent: in a container the agent
    does not know the pids. Each file replaces the one before.
    """

    def __init__(self, spec: AttemptSpec) -> None:
        self._path = Path(spec.spool_dir) / USAGE_FILE
        self._due = 0.0
        self._written: Mapping[str, Any] = {}

    def measure(self, now: float, engines: Mapping[int, DesiredSlot]) -> None:
        """Measure the engines and all processes that they have started, at most every five seconds.

        Args:
            now: monotonic seconds.
            engines: the slot of each engine, by pid.
        """
        if now < self._due or not (engines or self._written):
            return
        self._due = now + _MEASURE_SECONDS
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
        with contextlib.suppress(OSError):  # a full disk is reported by the spool
            text = json.dumps({"time": now, "engines": self._written})
            write_whole(self._path, text, mode=0o600, durable=False, alone=True)
