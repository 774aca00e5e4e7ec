"""The processes of a home, as /proc shows them. A zombie is dead: it holds nothing any more."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A living process that bears a home's mark. (pid, start) names it for ever."""

    pid: int
    start: int
    parent: int
    name: str
    """``comm``: edt-engine, edt-driver, edt-coordinator, edt-supervisor, or the interpreter's."""
    life: str
    """EDT_LIFE: the same for a supervisor and all that descends from it; "" for the platform's own."""
    node: str
    """EDT_NODE: whose agent started it."""
    command: str

    @property
    def identity(self) -> tuple[int, int]:
        return self.pid, self.start

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def processes(tag: str) -> list[Process]:
    """Everything alive that was started with EDT_TAG=``tag``."""
    mark = f"EDT_TAG={tag}".encode()
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError):  # it ended while it was looked at
            words = (entry / "environ").read_bytes().split(b"\0")
            if mark in words and (process := _look(int(entry.name), words)) is not None:
                found.append(process)
    return found


def children(parent: int) -> list[Process]:
    """The living children of a process, whatever they bear: a server that writes its own title loses its marks."""
    found = []
    with contextlib.suppress(OSError):
        for word in (_PROC / str(parent) / "task" / str(parent) / "children").read_text().split():
            if (process := _look(int(word), [])) is not None:
                found.append(process)
    return found


def lives(pid: int, start: int) -> bool:
    """Whether exactly this process still lives."""
    fields = _stat(pid)
    return fields is not None and int(fields[19]) == start


def _look(pid: int, environ: list[bytes]) -> Process | None:
    fields = _stat(pid)
    if fields is None:
        return None
    marks = dict(word.split(b"=", 1) for word in environ if b"=" in word)
    return Process(
        pid=pid,
        start=int(fields[19]),
        parent=int(fields[1]),
        name=(_PROC / str(pid) / "comm").read_text().strip(),
        life=marks.get(b"EDT_LIFE", b"").decode(errors="replace"),
        node=marks.get(b"EDT_NODE", b"").decode(errors="replace"),
        command=(_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip(),
    )


def _stat(pid: int) -> list[str] | None:
    """/proc/PID/stat from the state on; None for the dead."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else fields
