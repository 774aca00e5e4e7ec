"""One supervisor as the agent knows it: whether it runs, its desired state, and what it reported.

It uses the supervisor's socket and its spool; the launcher's handle watches what the supervisor runs in. An ``Attempt``
is made in the same way for a supervisor just started and for one that an earlier agent started.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from edt_agent.decide import AttemptSnapshot, Phase
from edt_agent.errors import log_defect, wait_until_set
from edt_agent.launchers import Handle
from edt_agent.processes import ProcessId, alive
from edt_agent.spool import Spool
from edt_agent.supervisor_records import Key
from edt_contract.attempt import ATTEMPT_FILE, DesiredState
from edt_contract.encoding import dump_line
from edt_contract.reports import Report, ReportKind

log = logging.getLogger(__name__)

_RECONNECT_SECONDS = 0.05
_RECONNECT_MOST_SECONDS = 1.0
_READ_SECONDS = 60.0
"""The reports of a supervisor that is gone are read for so long; then the rest is cut off."""


class Attempt:
    """One supervisor. ``set_desired`` sends it a desired state, and ``snapshot`` says how it is.

    Args:
        spool: its reports.
        handle: what it runs in, with the record of it.
        now: monotonic seconds.
        wake: called whenever the snapshot may have changed.
    """

    def __init__(
        self,
        spool: Spool,
        handle: Handle,
        *,
        now: float,
        wake: Callable[[], None],
    ) -> None:
        self.record = handle.record
        self.spool = spool
        self._handle = handle
        self._wake = wake
        self._desired: DesiredState | None = None
        self._engine_processes: dict[int, set[ProcessId]] = {}
        """By allocation: processes that a report named as its engine and that were the supervisor's children then."""
        self._behind_since: float | None = None
        spool.is_plausible = self._is_plausible
        self._changed = asyncio.Event()
        self._since = now
        self._phase = Phase.LIVE
        self._empty = False
        handle.watch(self._handle_changed)
        self._connection = asyncio.create_task(self._keep_connected(), name=f"socket of {self.key}")
        self._connection.add_done_callback(log_defect)

    @property
    def key(self) -> Key:
        return self.record.key

    def snapshot(self, now: float) -> AttemptSnapshot:
        """How the attempt is now. ``now`` is monotonic seconds."""
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
        if phase is Phase.LIVE and (self._desired is not None or facts.open_engines):
            self._handle.make_room_for(self._engines())
        return AttemptSnapshot(
            phase=phase,
            desired=self._desired,
            since=self._since,
            grace_seconds=self.record.grace_seconds,
            lives=lives,
            empty=self._empty,
            reported=self.spool.all_acked or not self.spool.path.exists(),
            written=self.spool.all_written,
            began=facts.started or self.record.acked > self.record.before or self._took_its_spec,
            last_seq=facts.last_seq,
            code=self._handle.code,
            oom=self._handle.oom and not facts.starved,
            last_output=self._handle.last_output,
            behind=behind,
        )

    @property
    def lives(self) -> bool:
        """Whether its supervisor runs."""
        return self._handle.lives

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more and its last report is on disk."""
        return self._empty and self.spool.facts.ended and not self.spool.behind

    def set_desired(self, desired: DesiredState, now: float) -> None:
        """Send this desired state, and send it again whenever the socket has to be opened again."""
        if _direction(desired) != _direction(self._desired):
            self._since = now
        self._desired = desired
        self._changed.set()

    def kill(self) -> None:
        """SIGKILL to all its processes. A process that starts meanwhile is found by the next snapshot."""
        self._handle.kill()

    def drop(self) -> None:
        """Stop watching it and close its socket. What runs goes on."""
        self._connection.cancel()
        self._handle.drop()

    async def remove(self) -> None:
        """Remove all that is left of it but its spool.

        Raises:
            LauncherAway: the launcher does not answer.
        """
        self._connection.cancel()
        await self._handle.remove()

    def _is_behind(self, lives: bool, now: float) -> bool:
        """Whether there are reports to read. Of a supervisor that is gone they are not read for ever."""
        if not self.spool.behind or lives:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        elif now > self._behind_since + _READ_SECONDS:
            self.spool.discard_unread()
        return self.spool.behind

    def _is_plausible(self, report: Report) -> bool | None:
        """Whether a report of an engine's process can be true; the job may have written it itself. A slot is given back
        only when no process that was seen as its engine runs, and when no engine is about to be started there."""
        if report.kind is ReportKind.ENGINE_STARTED:
            pid = report.body.get("pid")
            child = self._handle.child(pid) if isinstance(pid, int) else None
            if child is not None:
                self._engine_processes.setdefault(report.body["allocation"], set()).add(child)
            return True
        if report.kind is not ReportKind.ENGINE_GONE or self.record.guarded or not self.lives:
            return True
        allocation = report.body["allocation"]
        if any(alive(process) for process in self._engine_processes.get(allocation, ())):
            return False
        if allocation in self.spool.facts.open_engines or allocation in self.spool.facts.gone:
            return True
        if self._desired is None:
            return None  # it is not known yet which engines it was to start
        return all(slot.allocation != allocation for slot in self._desired.slots)

    @property
    def _took_its_spec(self) -> bool:
        """Whether it has written attempt.json, which it does before any user code runs."""
        return (self.spool.path.parent / ATTEMPT_FILE).exists()

    def _engines(self) -> int:
        """How many engines are desired or still run, whichever is more."""
        desired_slots = len(self._desired.slots) if self._desired is not None else 0
        return max(desired_slots, len(self.spool.facts.open_engines))

    def _handle_changed(self) -> None:
        self._changed.set()
        self._wake()

    async def _keep_connected(self) -> None:
        """Send the newest desired state whenever it changes or the socket had to be opened again."""
        pause = _RECONNECT_SECONDS
        while self.lives:
            try:
                reader, writer = await asyncio.open_unix_connection(self.record.socket)
            except OSError:
                await asyncio.sleep(pause)  # it still imports its framework, or it opens its socket again
                pause = min(pause * 1.5, _RECONNECT_MOST_SECONDS)
                continue
            pause = _RECONNECT_SECONDS
            listening = asyncio.create_task(self._wake_on_input(reader))
            try:
                await self._send_desired(writer, listening)
            except OSError:
                log.debug("%s: its socket broke off", self.key)
            finally:
                listening.cancel()
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        self._wake()

    async def _send_desired(self, writer: asyncio.StreamWriter, listening: asyncio.Task[None]) -> None:
        sent: DesiredState | None = None
        while not listening.done():
            self._changed.clear()
            # An engine that starts has its memory limit before; one that leaves does not wait for it.
            if self._desired is not None and self._desired != sent and self._handle.make_room_for(self._engines()):
                sent = self._desired
                writer.write(dump_line(sent))
                await writer.drain()
            await wait_until_set(self._changed, listening)

    async def _wake_on_input(self, reader: asyncio.StreamReader) -> None:
        """Whatever the supervisor sends means that there is something new in its spool."""
        with contextlib.suppress(OSError):
            while await reader.read(1 << 16):
                self._wake()


def _direction(desired: DesiredState | None) -> str:
    """Whether the attempt stays, leaves or stops. Time limits count from a change of it."""
    if desired is None or (desired.slots and not desired.stop):
        return "stay"
    return "stop" if desired.stop else "leave"
