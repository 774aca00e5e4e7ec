"""Room: runners, agent. One supervisor as the agent knows it: alive or not, what it was wished, what it reported.

Touches the supervisor's socket and its spool; what it runs in is its handle's business (``launcher.py``). Made the same
way for a supervisor just started and for one that an earlier agent started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from edt_agent.decide import Phase, Running
from edt_agent.launcher import Handle
from edt_agent.ledger import ATTEMPT_FILE, Entry, Key
from edt_agent.processes import ProcessId, alive
from edt_agent.spool import Spool
from edt_runner.contract import Report, ReportKind, Wish, dump_line

log = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.05
_RECONNECT_MOST_SECONDS = 1.0
_READ_SECONDS = 60.0
"""So long is read on in what a supervisor that is gone has left, before the rest is given up."""


class Attempt:
    """Wishes go in by ``tell``, a picture of it comes out by ``look``; ``wake`` is called when that picture
    changes."""

    def __init__(
        self,
        entry: Entry,
        spool: Spool,
        handle: Handle,
        *,
        now: float,
        wake: Callable[[], None],
    ) -> None:
        self.entry = entry
        self.spool = spool
        self._handle = handle
        self._wake = wake
        self._wish: Wish | None = None
        self._engine_processes: dict[int, set[ProcessId]] = {}
        """By allocation: what its supervisor's reports named as its engine, and was its supervisor's child then."""
        self._behind_since: float | None = None
        spool.believes = self._believes
        self._changed = asyncio.Event()
        self._since = now
        self._phase = Phase.LIVE
        self._empty = False
        handle.watch(self._handle_changed)
        self._talk = asyncio.create_task(self._keep_talking(), name=f"talk to {entry.key}")
        self._talk.add_done_callback(_tell_failure)

    @property
    def key(self) -> Key:
        return self.entry.key

    def look(self, now: float) -> Running:
        """It as it is now."""
        lives = self.lives
        facts = self.spool.scan()
        behind = self._is_behind(lives, now)
        phase = Phase.LIVE if lives or behind else Phase.DEAD
        if facts.ended and not behind:
            phase = Phase.ENDED
        if phase != self._phase:
            self._phase, self._since = phase, now
        if not self._empty and not lives:
            self._empty = self._handle.empty()
        if phase is Phase.LIVE and (self._wish is not None or facts.open_engines):
            self._handle.room_for(self._engines())
        return Running(
            phase=phase,
            wish=self._wish,
            since=self._since,
            grace_seconds=self.entry.grace_seconds,
            lives=lives,
            empty=self._empty,
            reported=self.spool.all_acked or not self.spool.path.exists(),
            written=self.spool.all_written,
            began=facts.started or self.entry.acked > self.entry.before or self._listened,
            last_seq=facts.last_seq,
            code=self._handle.code,
            oom=self._handle.oom and not facts.starved,
            said=self._handle.said,
            behind=behind,
        )

    @property
    def lives(self) -> bool:
        """Whether its supervisor does."""
        return self._handle.lives

    @property
    def ended(self) -> bool:
        """Nothing runs any more and the last word is on disk."""
        return self._empty and self.spool.facts.ended and not self.spool.behind

    def tell(self, wish: Wish, now: float) -> None:
        """From now on this is what it is wished, as often as the socket has to be opened again."""
        if _direction(wish) != _direction(self._wish):
            self._since = now
        self._wish = wish
        self._changed.set()

    def kill(self) -> None:
        """SIGKILL to all of it. Whoever is born meanwhile is found by the next look."""
        self._handle.kill()

    def drop(self) -> None:
        """Stop watching and talking. What runs goes on."""
        self._talk.cancel()
        self._handle.drop()

    async def remove(self) -> None:
        """All is said and heard: leave nothing behind but its spool. Raises LauncherAway."""
        self._talk.cancel()
        await self._handle.remove()

    def _is_behind(self, lives: bool, now: float) -> bool:
        """Whether there is more to read. Of one that is gone, not for ever: what it left may have no end."""
        if not self.spool.behind or lives:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        elif now > self._behind_since + _READ_SECONDS:
            self.spool.give_up_the_rest()
        return self.spool.behind

    def _believes(self, report: Report) -> bool | None:
        """Whether what a report says of an engine's process can be so: the job may have written it itself. A slot is
        given back only when nothing that was seen as its engine lives, and an engine was not just to be started."""
        if report.kind is ReportKind.ENGINE_STARTED:
            pid = report.body.get("pid")
            child = self._handle.child(pid) if isinstance(pid, int) else None
            if child is not None:
                self._engine_processes.setdefault(report.body["allocation"], set()).add(child)
            return True
        if report.kind is not ReportKind.ENGINE_GONE or self._handle.sole_writer or not self.lives:
            return True
        allocation = report.body["allocation"]
        if any(alive(process) for process in self._engine_processes.get(allocation, ())):
            return False
        if allocation in self.spool.facts.open_engines or allocation in self.spool.facts.gone:
            return True
        if self._wish is None:
            return None  # nobody knows yet what it was to start
        return all(slot.allocation != allocation for slot in self._wish.slots)

    @property
    def _listened(self) -> bool:
        """It got so far as to write attempt.json, which it does before anything of the user's runs."""
        return (self.spool.path.parent / ATTEMPT_FILE).exists()

    def _engines(self) -> int:
        """As many as are wished or still run, whichever is more."""
        wished = len(self._wish.slots) if self._wish is not None else 0
        return max(wished, len(self.spool.facts.open_engines))

    def _handle_changed(self) -> None:
        self._changed.set()
        self._wake()

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
            # Engines that come have room before they come; those that go are not kept waiting.
            if self._wish is not None and self._wish != sent and self._handle.room_for(self._engines()):
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
