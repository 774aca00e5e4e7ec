"""Room: runners, agent. One supervisor as the agent knows it: alive or not, what it was wished, what it reported.

Touches the supervisor's socket, its spool and its processes. Made the same way for a supervisor just started and for
one that an earlier agent started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable

from edt_agent.children import Child
from edt_agent.decide import Phase, Running
from edt_agent.ledger import ATTEMPT_FILE, Entry, Key
from edt_agent.processes import Process, ProcessId, alive, bearers, environment, kill
from edt_agent.settings import LIFE_VARIABLE
from edt_agent.spool import Spool
from edt_runner.contract import TAG_VARIABLE, Wish, dump_line

log = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.05
_RECONNECT_MOST_SECONDS = 1.0


class Attempt:
    """Wishes go in by ``tell``, a picture of it comes out by ``look``; ``wake`` is called when that picture
    changes."""

    def __init__(
        self,
        entry: Entry,
        spool: Spool,
        *,
        tag: str,
        now: float,
        wake: Callable[[], None],
        child: Child | None = None,
    ) -> None:
        self.entry = entry
        self.spool = spool
        self._tag = tag
        self._wake = wake
        self._child = child
        self._wish: Wish | None = None
        self._changed = asyncio.Event()
        self._since = now
        self._phase = Phase.LIVE
        self._empty = False
        self._pidfd = self._open_pidfd()
        self._talk = asyncio.create_task(self._keep_talking(), name=f"talk to {entry.key}")
        self._talk.add_done_callback(_tell_failure)

    @property
    def key(self) -> Key:
        return self.entry.key

    def look(self, now: float) -> Running:
        """It as it is now."""
        lives = self.lives
        facts = self.spool.scan()
        phase = Phase.ENDED if facts.ended else Phase.LIVE if lives else Phase.DEAD
        if phase != self._phase:
            self._phase, self._since = phase, now
        if not self._empty and not lives:
            self._empty = not self.processes()
        return Running(
            phase=phase,
            wish=self._wish,
            since=self._since,
            grace_seconds=self.entry.grace_seconds,
            lives=lives,
            empty=self._empty,
            reported=self.spool.all_acked or not self.spool.path.exists(),
            began=facts.started or self.entry.acked > self.entry.before or self._listened,
            last_seq=facts.last_seq,
            code=self._child.status if self._child is not None else None,
        )

    @property
    def lives(self) -> bool:
        """Whether its supervisor does: exactly that process, bearing this home's mark."""
        return self._pidfd is not None and alive(self.entry.process)

    @property
    def ended(self) -> bool:
        """Nothing runs any more and the last word is on disk."""
        return self._empty and self.spool.facts.ended

    def tell(self, wish: Wish, now: float) -> None:
        """From now on this is what it is wished, as often as the socket has to be opened again."""
        if _direction(wish) != _direction(self._wish):
            self._since = now
        self._wish = wish
        self._changed.set()

    def processes(self) -> list[Process]:
        """Its supervisor and every process that descends from it, whatever session it moved to."""
        entry = self.entry
        found = bearers({TAG_VARIABLE: self._tag})
        if entry.life:
            return [process for process in found if environment(process.id.pid).get(LIFE_VARIABLE) == entry.life]
        # Only the spool told of it (ledger.from_attempt_file): its session must do, unless the number is
        # taken anew.
        if any(process.id.pid == entry.pid and process.id != entry.process for process in found):
            return []
        return [process for process in found if process.session == entry.pid]

    def kill(self) -> None:
        """SIGKILL to all of it. Whoever is born meanwhile is found by the next look."""
        kill(process.id for process in self.processes())

    def drop(self) -> None:
        """Stop watching and talking. What runs goes on."""
        self._talk.cancel()
        self._close_pidfd()

    @property
    def _listened(self) -> bool:
        """It got so far as to write attempt.json, which it does before anything of the user's runs."""
        return (self.spool.path.parent / ATTEMPT_FILE).exists()

    def _open_pidfd(self) -> int | None:
        process: ProcessId = self.entry.process
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

    def _on_gone(self) -> None:
        self._close_pidfd()
        self._wake()

    def _close_pidfd(self) -> None:
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    async def _keep_talking(self) -> None:
        """Send the newest wish whenever it changes or the socket had to be opened anew; wake on every answer."""
        pause = _RECONNECT_SECONDS
        while self.lives:
            try:
                reader, writer = await asyncio.open_unix_connection(self.entry.socket)
            except OSError:
                await asyncio.sleep(pause)  # it still imports its framework, or listens anew
                pause = min(pause * 1.5, _RECONNECT_MOST_SECONDS)
                continue
            pause = _RECONNECT_SECONDS
            listening = asyncio.create_task(self._listen(reader))
            try:
                await self._send_wishes(writer, listening)
            except OSError:
                log.debug("%s: its socket broke off", self.key)
            finally:
                listening.cancel()
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        self._wake()

    async def _send_wishes(self, writer: asyncio.StreamWriter, listening: asyncio.Task[None]) -> None:
        sent: Wish | None = None
        while not listening.done():
            self._changed.clear()
            if self._wish is not None and self._wish != sent:
                sent = self._wish
                writer.write(dump_line(sent.to_message()))
                await writer.drain()
            change = asyncio.create_task(self._changed.wait())
            try:
                await asyncio.wait({change, listening}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                change.cancel()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        """What comes says no more than: there is something new in the spool."""
        with contextlib.suppress(OSError):
            while await reader.read(1 << 16):
                self._wake()


def _tell_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s: stopped by a defect of ours", task.get_name(), exc_info=error)


def _direction(wish: Wish | None) -> str:
    """Staying, leaving or stopping; the patience of the agent counts from a change of it."""
    if wish is None or (wish.slots and not wish.stop):
        return "stay"
    return "stop" if wish.stop else "leave"
