"""Reads facts about processes from /proc, and calls Linux to control processes. Every process of OpenEDT that has
children uses this module."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TAG_VARIABLE = "EDT_TAG"
"""Environment variable that marks every process of one home. A process that adopts others reads it from /proc."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NAME = 15
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of malloc.h."""
_MOST = (1 << 31) - 1
"""Largest value of these parameters, which are C ints."""
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: object) -> None:
    """Make the system call prctl.

    Raises:
        OSError: the call fails.
    """
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def die_with(parent: int) -> None:
    """Ask Linux to send this process SIGKILL when the parent's main thread ends. Call this first in a child.

    If the parent has died before this call, this process exits at once.

    Args:
        parent: the parent's pid.

    Raises:
        OSError: prctl fails.
    """
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def wake(pipe: int, message: bytes) -> None:
    """Wake a process by writing into its pipe. If the pipe is full, the process will wake anyway."""
    with contextlib.suppress(BlockingIOError):
        os.write(pipe, message)


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent dies, so that it can find all of them.

    Raises:
        OSError: prctl fails.
    """
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def ended_children() -> Iterator[tuple[int, int]]:
    """Reap the children that have ended; yields pid and wait status of each."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


class Termination:
    """Asks processes to end: each gets SIGTERM once, by itself or with its process group."""

    def __init__(self) -> None:
        self._pids: set[int] = set()
        self._groups: set[int] = set()

    def ask(self, pid: int) -> None:
        """Ask one process, which may have ended."""
        if pid not in self._pids:
            self._pids.add(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    def ask_group(self, leader: int) -> None:
        """Ask a process and all processes of its group. Launchers such as torchrun put the processes that they start
        into other groups, and forward the signal themselves; a shell does not."""
        self._groups.add(leader)
        try:
            os.killpg(leader, signal.SIGTERM)
        except PermissionError:
            pass
        except ProcessLookupError:  # it has just been forked, and leads no group yet
            self.ask(leader)

    def ask_orphans(self) -> None:
        """Ask the children of this process that were not asked yet. Those are processes that it has adopted
        (``adopt_orphans``): no other process can pass a signal on to them. Call this again and again, because processes
        that end leave children."""
        me = os.getpid()
        for pid, fields in _living():
            parent, group = int(fields[1]), int(fields[2])
            if parent != me or pid in self._pids or group in self._groups:
                continue
            if pid == group:
                self.ask_group(pid)
            else:
                self.ask(pid)


def set_name(name: str) -> None:
    """Set the name of this process in ``ps`` and ``top`` (at most 15 bytes).

    Raises:
        OSError: prctl fails.
    """
    prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def die_first() -> None:
    """When memory runs out, let the kernel kill this process and its children before its parent and the platform."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def keep_freed_memory(environ: Mapping[str, str]) -> None:
    """Let this process and its children keep freed memory for the next step.

    By default glibc maps each large block anew and unmaps it when it is freed, and it returns free memory at the end of
    its heap to the kernel. So each step that makes and drops gradients pays again for every page of them (a quarter of
    a step's processor time at 25 million parameters). After this call blocks below 1 GiB come from the heap, and glibc
    keeps up to 2 GiB of free memory at the heap's end. A process may therefore hold up to 2 GiB that it does not use.

    Args:
        environ: the environment. MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_, if a user has set them, replace the
            values above. glibc itself reads them only when a program starts, which was before this process was forked.
    """
    if not hasattr(_libc, "mallopt") or not hasattr(_libc, "gnu_get_libc_version"):
        return
    for parameter, name, value in (
        (_M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", _MOST),
        (_M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", 1 << 30),
    ):
        with contextlib.suppress(ValueError):  # glibc also ignores values that it cannot read
            _libc.mallopt(parameter, min(int(environ.get(name, value)), _MOST))


def threads() -> int:
    """Number of threads of this process, including those of C libraries."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def start_time(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot (field 22 of /proc/PID/stat). Pid and start time together
    identify a process. None: the process is gone or a zombie."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process (state T). Such a process does not run until another signal comes."""
    fields = stat_fields(pid)
    return fields is not None and fields[0] == "T"


def descendants(root: int) -> list[int]:
    """Pids of all living processes that descend from ``root``."""
    return _below(root, {pid: int(fields[1]) for pid, fields in _living()})


def children(parent: int) -> list[int]:
    """Pids of all living processes whose parent is ``parent``."""
    return [pid for pid, fields in _living() if int(fields[1]) == parent]


@dataclass(frozen=True)
class Used:
    """The resources that a process and all its descendants have used."""

    cpu_seconds: float
    """Processor time of the living processes, and of ended ones that their parents have waited for."""
    rss_bytes: int
    """Memory that is in use now. A page that several processes share counts for each of them."""


def used_below(roots: Collection[int]) -> dict[int, Used]:
    """The resources that each of these processes has used with all its descendants, by pid. Processes that are gone
    are left out."""
    table = dict(_living())
    parents = {pid: int(fields[1]) for pid, fields in table.items()}
    found: dict[int, Used] = {}
    for root in set(roots) & table.keys():
        family = [table[pid] for pid in (root, *_below(root, parents))]
        ticks = sum(int(field) for fields in family for field in fields[11:15])  # utime, stime, cutime, cstime
        pages = sum(int(fields[21]) for fields in family)
        found[root] = Used(ticks / _TICKS_A_SECOND, pages * _PAGE_BYTES)
    return found


def _below(root: int, parents: Mapping[int, int]) -> list[int]:
    """All processes below ``root``. ``parents`` was read one process after another while processes started and ended,
    so it may contain a loop."""
    found: list[int] = []
    frontier = {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier} - {root, *found}
        found += frontier
    return found


def _living() -> Iterator[tuple[int, list[str]]]:
    """Pid and ``stat_fields`` of every process that is not dead."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = stat_fields(int(entry.name))
            if fields is not None and fields[0] not in ("Z", "X"):
                yield int(entry.name), fields


def stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; None: there is no such process. The name, which comes before, may
    contain any characters."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()
