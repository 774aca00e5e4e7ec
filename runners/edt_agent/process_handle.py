"""Room: runners, agent. A supervisor that is a process of this machine. Touches /proc, a pidfd and signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from edt_agent.children import Child
from edt_agent.ledger import Entry
from edt_agent.processes import Process, ProcessId, alive, bearers, environment, kill, look
from edt_agent.settings import LIFE_VARIABLE
from edt_runner.contract import TAG_VARIABLE


class ProcessHandle:
    """See ``Handle``. ``child``: where this very agent started it."""

    oom = False
    said = ""
    sole_writer = False

    def __init__(self, entry: Entry, tag: str, child: Child | None = None) -> None:
        self._entry, self._tag, self._child = entry, tag, child
        self._changed: Callable[[], None] = lambda: None
        self._pidfd = self._open_pidfd()
        if child is not None:
            child.on_exit.append(self._on_exit)

    @property
    def lives(self) -> bool:
        """Exactly that process, bearing this home's mark. A child of ours does until it is reaped: before that nobody
        knows how it ended, and whoever looked in between would say so."""
        if self._child is not None:
            return self._child.status is None
        return self._pidfd is not None and alive(self._entry.process)

    @property
    def code(self) -> int | None:
        return self._child.status if self._child is not None else None

    def empty(self) -> bool:
        return not self.lives and not self._processes()

    def child(self, pid: int) -> ProcessId | None:
        process = look(pid)
        is_one = process is not None and process.alive and process.parent == self._entry.pid
        return process.id if process is not None and is_one and self.lives else None

    def kill(self) -> None:
        """Whoever is born meanwhile is found by the next look."""
        kill(process.id for process in self._processes())

    def room_for(self, engines: int) -> bool:
        return True

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def drop(self) -> None:
        self._changed = lambda: None
        self._close_pidfd()

    async def remove(self) -> None:
        self.drop()
        if self._entry.socket:  # one that was killed has not tidied up
            with contextlib.suppress(OSError):
                Path(self._entry.socket).unlink()  # noqa: ASYNC240 - on this machine's own disk

    def _processes(self) -> list[Process]:
        """Its supervisor and every process that descends from it, whatever session it moved to."""
        entry = self._entry
        found = bearers({TAG_VARIABLE: self._tag})
        if entry.life:
            return [process for process in found if environment(process.id.pid).get(LIFE_VARIABLE) == entry.life]
        # Only the spool told of it (ledger.from_attempt_file): its session must do, unless the number is
        # taken anew.
        if any(process.id.pid == entry.pid and process.id != entry.process for process in found):
            return []
        return [process for process in found if process.session == entry.pid]

    def _open_pidfd(self) -> int | None:
        process: ProcessId = self._entry.process
        try:
            handle = os.pidfd_open(process.pid)
        except OSError:
            return None
        # Looked at after opening: what the handle holds cannot become another process any more.
        if not alive(process) or environment(process.pid).get(TAG_VARIABLE) != self._tag:
            os.close(handle)
            return None
        asyncio.get_running_loop().add_reader(handle, self._on_gone)
        return handle

    def _on_exit(self) -> None:
        self._changed()

    def _on_gone(self) -> None:
        self._close_pidfd()
        self._changed()

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
