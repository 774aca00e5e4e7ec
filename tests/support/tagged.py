"""The processes of one home, seen from outside: by the mark in their environment, and never by name."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from edt_contract.processes import TAG_VARIABLE


def bearers(tag: str, **more: str) -> dict[int, str]:
    """pid to command line of every living process that bears the home's tag, and what else is named."""
    wanted = [f"{name}={value}".encode() for name, value in {TAG_VARIABLE: tag, **more}.items()]
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            environ = (entry / "environ").read_bytes().split(b"\0")
            if all(each in environ for each in wanted) and lives(int(entry.name)):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return found


def training(tag: str) -> set[int]:
    """pids of supervisors, the warm ones too, and of all that descends from them; the platform's own are not."""
    return {pid for pid in bearers(tag) if b"\0EDT_LIFE=" in b"\0" + _environ(pid)}


def _environ(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def lives(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


def leads(pid: int) -> bool:
    """Whether a process, if it is still there, leads its session, as supervisors do."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def kill_bearers(tag: str, seconds: float = 30.0) -> None:
    """SIGKILL to everything of a home, again until nothing is left."""
    deadline = time.monotonic() + seconds
    while left := bearers(tag):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise AssertionError(f"cannot be killed: {left}")
        time.sleep(0.02)
