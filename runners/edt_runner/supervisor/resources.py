"""Memory and processor time of the engines: which kills were for want of memory, how much engines use, and what the C
library keeps of freed memory. Reads /proc and /sys, writes one file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edt_contract import processes
from edt_contract.attempt import USAGE_FILE, AttemptSpec, DesiredSlot
from edt_contract.durable import write_whole

_COUNTER = "oom_kill"
_EXPLAINS_SECONDS = 5.0
"""So long may a process that has much memory take from its kill to its end."""
_MEASURE_SECONDS = 5.0
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of malloc.h."""
_MOST = (1 << 31) - 1
"""Values of these parameters are C ints."""


class OomCounter:
    """Counts the SIGKILLs that the kernel has sent for want of memory, from now on.

    A process that dies of SIGKILL does not say who sent it. The kernel counts its own in the victim's memory cgroup,
    and for the whole machine, before the victim is gone. Each that is counted explains one death, and only one that
    follows soon: a kill of something else, of a tool that the script has started for example, does not make a kill from
    outside look like one for memory. A kill of a neighbour in the same cgroup can, therefore the first one is not
    blamed on the script. Where nobody counts, nothing is ever explained.

    Args:
        process: the process's folder in /proc; children count with it as long as they stay in its cgroup.
        machine: where the kernel counts for the whole machine; used where the process's cgroup has no count.
    """

    def __init__(self, process: Path = Path("/proc/self"), machine: Path = Path("/proc/vmstat")) -> None:
        files = (_counter_file(process), machine)
        self.file = next((file for file in files if file is not None and _count(file) is not None), None)
        self._last = self.count() or 0
        self._kills: list[float] = []
        """When each was seen that has explained nothing yet."""

    def count(self) -> int | None:
        """Kills so far; None: nobody counts."""
        return None if self.file is None else _count(self.file)

    def look(self, now: float) -> None:
        """Call often: see what was killed by now. ``now``: monotonic seconds."""
        count = self.count()
        if count is not None:
            self._kills += [now] * (count - self._last)
            self._last = count
        self._kills = [then for then in self._kills if now - then <= _EXPLAINS_SECONDS]

    def explains(self, now: float) -> bool:
        """Whether a process that has just ended by SIGKILL was one that the kernel has killed."""
        self.look(now)
        if self._kills:
            self._kills.pop(0)
            return True
        return False


class UsageMeter:
    """Writes how much the engines use to a file, where the agent of the node finds it.

    Only this process can say whose a process is wherever it runs: it is the parent, and in a container the agent does
    not even know its pids. Each file replaces the one before.
    """

    def __init__(self, spec: AttemptSpec) -> None:
        self._path = Path(spec.spool_dir) / USAGE_FILE
        self._due = 0.0
        self._written: Mapping[str, Any] = {}

    def measure(self, now: float, engines: Mapping[int, DesiredSlot]) -> None:
        """Measure the engines, by pid, with all processes that they have started; may be called at any time, and does
        it every few seconds. ``now``: monotonic seconds."""
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


def keep_freed_memory(environ: Mapping[str, str]) -> None:
    """Let freed memory stay with this process and its children, for the next step.

    glibc maps each large block anew and unmaps it when it is freed, and it gives back what lies free at the end of its
    heap: a step that makes and drops its gradients pays for each of their pages anew (a quarter of a step's processor
    time at 25 million parameters). After this call blocks below 1 GiB come from the heap, and up to 2 GiB at its end
    are kept: so much of what a process has once needed may stay with it.

    Args:
        environ: a user's MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ win. glibc itself reads them only when a
            program starts, which was before this process was forked.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "gnu_get_libc_version"):
        return
    for parameter, name, value in (
        (_M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", _MOST),
        (_M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", 1 << 30),
    ):
        with contextlib.suppress(ValueError):  # as glibc does with what it cannot read
            libc.mallopt(parameter, min(int(environ.get(name, value)), _MOST))


def _count(file: Path) -> int | None:
    try:
        lines = [line.split() for line in file.read_text().splitlines()]
        return next(int(words[1]) for words in lines if words and words[0] == _COUNTER)
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _counter_file(process: Path) -> Path | None:
    """``memory.oom_control`` of cgroup version 1, ``memory.events`` of version 2."""
    try:
        groups = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    except OSError:
        return None
    for _, controllers, path in groups:
        old = "memory" in controllers.split(",")
        if not old and controllers:
            continue
        for mount in mounts:
            root, point, kind, options = mount[3], mount[4], mount[mount.index("-") + 1], mount[-1].split(",")
            if kind == ("cgroup" if old else "cgroup2") and (not old or "memory" in options):
                name = "memory.oom_control" if old else "memory.events"
                inside = path.removeprefix(root) if root != "/" else path  # a container sees only its own part
                for folder in (Path(point) / inside.lstrip("/"), Path(point)):
                    if (folder / name).is_file():
                        return folder / name
    return None
