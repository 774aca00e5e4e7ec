"""Finds processes that compute on this node's GPUs without being processes of a job of this node.

NVML knows a process by its pid alone, and in a container the pid may be a number of the machine outside. Therefore a
process is named only if its pid stands in /proc and the process there has a device of the NVIDIA driver open. If that
cannot be read, it is named only if this agent sees the machine's own pids.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

_MACHINES_OWN_PIDS = 0xEFFFFFFC
"""Inode of the first pid namespace, which the kernel makes when it boots."""
_DEVICE = "/dev/nvidia"
_MOST_BYTES = 1 << 20
_MOST_NAME = 64
_MOST_PROCESSES = 256
"""The API takes no more for a slot, and would refuse the whole sample."""


@dataclass(frozen=True)
class ForeignProcess:
    """A process that uses a GPU and belongs to no job of this node."""

    pid: int
    name: str


@dataclass(frozen=True)
class Ours:
    """How this node's own processes are known."""

    roots: Collection[int] = ()
    """Pids of supervisors, whose descendants are ours."""
    mark: bytes = b""
    """``NAME=VALUE`` that the environment of each of our processes holds; empty: none does."""
    containers: Collection[str] = ()
    """Ids of containers of our jobs."""


def foreign(reported: Mapping[int, str], ours: Ours, proc: Path = Path("/proc")) -> tuple[ForeignProcess, ...]:
    """Those of the processes that are not ours, by pid; the first 256.

    Args:
        reported: pid to name, as NVML tells them.
        ours: how our own processes are known.
        proc: the folder in which the kernel shows processes.
    """
    found = (
        ForeignProcess(pid, _name(proc / str(pid), nvml_name))
        for pid, nvml_name in sorted(reported.items())
        if _computes(proc, pid) and not _is_ours(proc, pid, ours)
    )
    return tuple(itertools.islice(found, _MOST_PROCESSES))


def _computes(proc: Path, pid: int) -> bool:
    """Whether the process of this pid surely is the one that uses the GPU."""
    folder = proc / str(pid) / "fd"
    try:
        return any(_target(file).startswith(_DEVICE) for file in folder.iterdir())
    except PermissionError:  # another user's process
        return _sees_all_pids(proc)
    except OSError:  # no such process
        return False


def _target(file: Path) -> str:
    try:
        return str(file.readlink())
    except OSError:  # closed meanwhile
        return ""


def _sees_all_pids(proc: Path) -> bool:
    try:
        return (proc / "self" / "ns" / "pid").stat().st_ino == _MACHINES_OWN_PIDS
    except OSError:
        return False


def _is_ours(proc: Path, pid: int, ours: Ours) -> bool:
    folder = proc / str(pid)
    if ours.mark and ours.mark in _read(folder / "environ").split(b"\0"):
        return True
    groups = _read(folder / "cgroup").decode(errors="replace")
    if any(container and container in groups for container in ours.containers):
        return True
    seen: set[int] = set()
    while pid > 1 and pid not in seen:
        if pid in ours.roots:
            return True
        seen.add(pid)
        pid = _parent(proc / str(pid))
    return False


def _parent(folder: Path) -> int:
    """The pid of a process's parent; 0: unknown."""
    fields = _read(folder / "stat").rpartition(b") ")[2].split()
    return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else 0


def _name(folder: Path, nvml_name: str) -> str:
    """The process's name for people: that of its program, as NVML tells it, or else as the kernel does."""
    name = nvml_name.rpartition("/")[2] or _read(folder / "comm").decode(errors="replace").strip()
    return name[:_MOST_NAME]


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return b""
