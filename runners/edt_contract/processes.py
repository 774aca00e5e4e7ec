"""What Linux knows about processes, and requests to it. Every process of ours that has children uses it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TAG_VARIABLE = "EDT_TAG"
"""Environment variable that marks every process of one home. Who adopts processes reads it from /proc."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NAME = 15
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of malloc.h."""
_MOST = (1 << 31) - 1
"""Values of these parameters are C ints."""
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: object) -> None:
    """The system call. Raises OSError where it fails."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def die_with(parent: int) -> None:
    """Ask for SIGKILL when the parent's main thread ends; call first thing in a child of ``parent``.

    The parent may have died before the request was made: then end here.
    """
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def wake(pipe: int, message: bytes) -> None:
    """Write into the pipe of a process that is to wake. A full pipe means that it is about to wake anyway."""
    with contextlib.suppress(BlockingIOError):
        os.write(pipe, message)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none escapes."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def ended_children() -> Iterator[tuple[int, int]]:
    """Reap the children that have ended: pid and wait status of each."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def set_name(name: str) -> None:
    """Name of this process in ``ps`` and ``top`` (15 characters)."""
    prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def die_first() -> None:
    """Where memory runs out the kernel ends this process, and those it forks, before its parent and the platform."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


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
    if not hasattr(_libc, "mallopt") or not hasattr(_libc, "gnu_get_libc_version"):
        return
    for parameter, name, value in (
        (_M_TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", _MOST),
        (_M_MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", 1 << 30),
    ):
        with contextlib.suppress(ValueError):  # as glibc does with what it cannot read
            _libc.mallopt(parameter, min(int(environ.get(name, value)), _MOST))


def threads() -> int:
    """Number of threads of this process, those of C libraries included."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def start_time(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat: with the pid it names a process for ever. None: gone, or a zombie."""
    fields = stat_fields(pid)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def is_stopped(pid: int) -> bool:
    """State T: stopped by a signal; it neither works nor dies by itself."""
    fields = stat_fields(pid)
    return fields is not None and fields[0] == "T"


def descendants(root: int) -> list[int]:
    """All living processes below ``root``, by parent links."""
    return _below(root, {pid: int(fields[1]) for pid, fields in _living()})


@dataclass(frozen=True)
class Used:
    """What a process has used, and all that it has started."""

    cpu_seconds: float
    """Of those that still live, and of those that were waited for."""
    rss_bytes: int
    """Memory now; a page that several share counts for each."""


def used_below(roots: Collection[int]) -> dict[int, Used]:
    """What each of these processes has used with all its descendants; one that is gone is left out."""
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
    """All processes below ``root``; ``parents`` is read one process after the other, while they come and go."""
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
    """Fields of /proc/PID/stat from the state on (the name before it may hold anything)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()
