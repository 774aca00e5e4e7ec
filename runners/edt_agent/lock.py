"""The lock of an agent's folder, so that a node has one agent at a time.

A file lock ends with the process that holds it. On a file system that machines share, it may outlive a machine that
died: the server keeps the lock for minutes, or until that machine comes back. So an agent on another machine may
replace the lock file (``take_over``). An agent whose lock file was replaced finds that it no longer ``holds`` it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path

from edt_agent.errors import HomeTaken

log = logging.getLogger(__name__)

_LOCK_SECONDS = 15.0
"""Seconds that the agent before this one may need to end."""
_AGAIN_SECONDS = 0.1
_BOOT_ID_BYTES = 64


class Lock:
    """A lock that this process holds.

    Args:
        path: the lock file.
        handle: its descriptor.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle

    @property
    def holds(self) -> bool:
        """Whether the file at the path is still the locked one. True also if the file system does not answer."""
        try:
            return os.path.samestat(os.fstat(self._handle), self._path.stat())
        except FileNotFoundError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Give the lock up."""
        os.close(self._handle)


@contextlib.asynccontextmanager
async def exclusive(path: Path, *, take_over: bool) -> AsyncIterator[Lock]:
    """Hold the lock of an agent's folder. Wait for it, because the agent before may need a few seconds to end.

    Args:
        path: the lock file.
        take_over: whether to replace the file if an agent on another machine seems to hold it for longer than
            ``_LOCK_SECONDS``. Only for a node that a cluster manager runs once: the other machine is lost then.

    Raises:
        HomeTaken: another agent holds the lock for longer than ``_LOCK_SECONDS``.
    """
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    logged = False
    while (lock := _try(path)) is None:
        if not logged:
            log.info("another agent works in %s; waiting for it to end", path.parent)
            logged = True
        if asyncio.get_running_loop().time() > deadline:
            if not take_over or _holder(path) in {"", boot_id()}:
                raise HomeTaken(f"another agent works in {path.parent}; stop it or choose another --name")
            log.warning("the machine that held the lock in %s counts as lost: its lock is replaced", path.parent)
            _remove(path)
            deadline += _LOCK_SECONDS
        await asyncio.sleep(_AGAIN_SECONDS)
    try:
        yield lock
    finally:
        lock.close()


def boot_id() -> str:
    """The kernel's id of this boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _try(path: Path) -> Lock | None:
    """The lock, if no other process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock = Lock(path, handle)
        if lock.holds:  # otherwise somebody has replaced the file since it was opened
            os.ftruncate(handle, 0)
            os.pwrite(handle, boot_id().encode(), 0)
            return lock
    except BlockingIOError:
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def _holder(path: Path) -> str:
    """Boot id of the machine whose agent took the lock last; "": unknown."""
    try:
        with path.open("rb") as file:
            return file.read(_BOOT_ID_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""
