"""What Linux tells about processes, and what ours ask of it. Room: runners; standard library only, since agent and
scheduler have children of their own that die with them.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NAME = 15
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: object) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")


def die_with(parent: int) -> None:
    """Ask for SIGKILL when the parent's main thread ends; call first thing in a child of ``parent``.

    The parent may have died before the request was made: then end here.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none escapes."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """Name of this process in ``ps`` and ``top`` (15 characters)."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


def threads() -> int:
    """Number of threads of this process, those of C libraries included."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def start_time(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat: with the pid it names a process for ever. None: gone, or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def is_stopped(pid: int) -> bool:
    """State T: stopped by a signal; it neither works nor dies by itself."""
    fields = _stat(pid)
    return fields is not None and fields[0] == "T"


def descendants(root: int) -> list[int]:
    """All living processes below ``root``, by parent links."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields is not None and fields[0] not in ("Z", "X"):
                parents[int(entry.name)] = int(fields[1])
    found: list[int] = []
    frontier = {root}
    while frontier:
        frontier = {pid for pid, parent in parents.items() if parent in frontier}
        found.extend(frontier)
    return found


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on (the name before it may hold anything)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()
