"""What changes on the platform, for all who listen: one look at the database for every listener of a process.

Room: api. Reads through operations, four times a second while somebody listens and not at all otherwise. A listener
gets every batch from the place on where the watcher stood when it came; what lies before that, back to a cursor of its
own, it is handed first. Next: stream.py, which writes batches as events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace

from anyio import to_thread

from edt_api.closing import Closing
from edt_scheduler import operations
from edt_scheduler.errors import CursorTooOld, Unavailable
from edt_scheduler.house import House
from edt_scheduler.views import Changes

log = logging.getLogger("edt.api")

LOOK_SECONDS = 0.25
MOST_WAITING = 64
"""Batches that are kept for a listener who does not take them; one with more has missed something."""
_HEALTHY_SECONDS = 5.0


@dataclass
class Batch:
    """Changes of one look, and how they read for each viewer; written once for all who see the same."""

    changes: Changes
    written: dict[int | None, bytes] = field(default_factory=dict)


@dataclass(eq=False)
class Listener:
    """One who listens. ``take`` hands out batches in their order."""

    cursor: str
    """How far it has been told everything."""
    missed: bool = False
    """Not everything could be told: whoever listens must look at all of it anew."""
    over: bool = False
    """No more will come."""
    _waiting: deque[Batch] = field(default_factory=deque)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, batch: Batch) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self.miss()
        self._waiting.append(batch)
        self._news.set()

    def tell_first(self, batch: Batch) -> None:
        """What lies before everything that waits already."""
        self._waiting.appendleft(batch)
        self._news.set()

    def miss(self) -> None:
        """What waits is worth nothing any more: something before it, or of it, is lost."""
        self._pass_over(list(self._waiting))
        self.missed = True
        self._news.set()

    def end(self) -> None:
        self.over = True
        self._news.set()

    async def news(self, seconds: float) -> None:
        """Return as soon as there is something to take, or after so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    def take(self) -> list[Batch]:
        """Everything that waits. The listener's cursor goes on with it."""
        taken = list(self._waiting)
        self._pass_over(taken)
        if not self.over:
            self._news.clear()
        return taken

    def _pass_over(self, batches: list[Batch]) -> None:
        self._waiting.clear()
        if batches:
            self.cursor = batches[-1].changes.cursor


class Feed:
    """The watcher of one process and those who listen to it. Belongs to one event loop."""

    def __init__(self, house: House, closing: Closing) -> None:
        self._house = house
        self._closing = closing
        self._listeners: set[Listener] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()
        self._cursor = ""
        self._looked_at = 0.0

    @property
    def healthy(self) -> bool:
        """The last look is not long ago: silence means that nothing has changed."""
        return asyncio.get_running_loop().time() - self._looked_at < _HEALTHY_SECONDS

    async def join(self, cursor: str | None) -> Listener:
        """Listen from ``cursor`` on, or from now on. Raises CursorInvalid; one that is too old has ``missed``."""
        async with self._beginning:
            if self._watcher is None or self._watcher.done():
                self._cursor = await to_thread.run_sync(operations.newest_change, self._house)
                self._looked_at = asyncio.get_running_loop().time()
                self._watcher = asyncio.create_task(self._watch(), name="the stream's watcher")
            # From here to the end of the block nothing is awaited: no batch comes between the two lines.
            listener = Listener(self._cursor)
            self._listeners.add(listener)
        try:
            if cursor is not None and cursor != listener.cursor:
                await self._catch_up(listener, cursor)
        except BaseException:
            self.leave(listener)
            raise
        return listener

    async def _catch_up(self, listener: Listener, cursor: str) -> None:
        """Put what happened between ``cursor`` and the place where the listener joined before all that came since."""
        until = listener.cursor
        try:
            changes = await to_thread.run_sync(lambda: operations.changes_since(self._house, cursor, until=until))
        except CursorTooOld:
            listener.miss()
        else:
            listener.tell_first(Batch(replace(changes, cursor=until)))

    def leave(self, listener: Listener) -> None:
        self._listeners.discard(listener)

    async def _watch(self) -> None:
        try:
            while self._listeners and not self._closing.asked:
                await asyncio.sleep(LOOK_SECONDS)
                with suppress(Unavailable):  # nobody is told that all is well meanwhile
                    await self._look()
        except Exception:
            log.exception("the changes cannot be looked at; whoever listened will call again")
        for listener in self._listeners:
            listener.end()

    async def _look(self) -> None:
        try:
            changes = await to_thread.run_sync(operations.changes_since, self._house, self._cursor)
        except CursorTooOld:  # the watcher itself slept for longer than changes are kept: a suspended machine
            changes = Changes(await to_thread.run_sync(operations.newest_change, self._house))
            for listener in self._listeners:
                listener.miss()
        self._looked_at = asyncio.get_running_loop().time()
        if changes.cursor == self._cursor:
            return
        self._cursor = changes.cursor
        batch = Batch(changes)
        for listener in self._listeners:
            listener.tell(batch)
