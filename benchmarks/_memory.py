"""What memory processes hold, by /proc."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

MIB = 1 << 20


def resident(pid: int) -> int:
    """Bytes that a process has in memory, shared ones and mapped files included."""
    return _rollup(pid, "Rss")


def own(pids: Iterable[int]) -> int:
    """Bytes that exist because of these processes: what they share with each other counts once, mapped files (code,
    above all), which others may have mapped too, as often as the largest of them has."""
    listed = list(pids)
    anonymous = sum(_rollup(pid, "Pss_Anon") + _rollup(pid, "Pss_Shmem") for pid in listed)
    return anonymous + max(_rollup(pid, "Rss") - _rollup(pid, "Anonymous") for pid in listed)


def family(pid: int) -> list[int]:
    """A process and all that it and they have started."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def _rollup(pid: int, field: str) -> int:
    """0: the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def begin_peak(pid: int) -> None:
    """Let Linux count the largest resident memory of a process from now on.

    Raises:
        OSError: the process is gone, or it is somebody else's.
    """
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak(pid: int) -> int:
    """The most bytes that a process had in memory since ``begin_peak``, or since it started; shared ones and mapped
    files included. 0: it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
