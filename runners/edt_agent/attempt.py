"""One supervisor from the agent's side: whether it runs, its desired state, and its reports.

An ``Attempt`` uses the supervisor's socket and spool. The launcher's handle watches the process or the container. An
``Attempt`` works in the same way for a new supervisor and for a supervisor that an earlier agent has started.
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
"""Seconds for which the agent reads the reports of a supervisor that is gone. After that it cuts off the rest."""


class Attempt:
    """One supervisor. ``set_desired`` sends a desired state to it, and ``snapshot`` returns its present condition.

    Args:
        spool: the supervisor's reports.
        handle: the supervisor's process or container, with its record.
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
        """By allocation: processes that a report named as the allocation's engine, and that were children of the
        supervisor at that time."""
        self._behind_since: float | None = None
        spool.is_plausible = self._is_plausible
        self._changed = asyncio.Event()
        self._since = now
        self._phase = Phase.LIVE
        self._empty = False
        self._killed = ""
        handle.watch(self._handle_changed)
        self._connection = asyncio.create_task(self._keep_connected(), name=f"socket of {self.key}")
        self._connection.add_done_callback(log_defect)

    @property
    def key(self) -> Key:
        """Job and fence of the attempt."""
        return self.record.key

    def snapshot(self, now: float) -> AttemptSnapshot:
        """The attempt's present condition. ``now``: monotonic seconds."""
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
            gang=self.record.gang,
            lives=lives,
            empty=self._empty,
            reported=self.spool.all_acked or not self.spool.path.exists(),
            written=self.spool.all_written,
            began=facts.started or self.record.acked > self.record.before or self._took_its_spec,
            last_seq=facts.last_seq,
            code=self._handle.code,
            oom=self._handle.oom and not facts.starved,
            killed=self._killed,
            last_output=self._handle.last_output,
            behind=behind,
        )

    @property
    def lives(self) -> bool:
        """Whether the attempt's supervisor runs."""
        return self._handle.lives

    @property
    def ended(self) -> bool:
        """Whether no process of the attempt runs any more and its last report is on disk."""
        return self._empty and self.spool.facts.ended and not self.spool.behind

    def set_desired(self, desired: DesiredState, now: float) -> None:
        """Send this desired state to the supervisor, and send it again whenever the socket is opened again. ``now``:
        monotonic seconds."""
        if _direction(desired) != _direction(self._desired):
            self._since = now
        self._desired = desired
        self._changed.set()

    def kill(self, why: str = "") -> None:
        """Send SIGKILL to all processes of the attempt. ``snapshot`` then shows whether a process has started during
        this; if so, call ``kill`` again.

        Args:
            why: the reason, in words for the job's user; "": no words.
        """
        if not self._killed and self.lives:
            self._killed = why
        self._handle.kill()

    def drop(self) -> None:
        """Stop watching the supervisor, and close the connection to it. Its processes continue."""
        self._connection.cancel()
        self._handle.drop()

    async def remove(self) -> None:
        """Remove everything that is left of the attempt, except its spool.

        Raises:
            LauncherAway: the launcher does not answer.
        """
        self._connection.cancel()
        await self._handle.remove()

    def _is_behind(self, lives: bool, now: float) -> bool:
        """Whether there are reports to read. If the supervisor is gone, they are read for ``_READ_SECONDS`` at most."""
        if not self.spool.behind or lives:
            self._behind_since = None
        elif self._behind_since is None:
            self._behind_since = now
        elif now > self._behind_since + _READ_SECONDS:
            self.spool.discard_unread()
        return self.spool.behind

    def _is_plausible(self, report: Report) -> bool | None:
        """Whether a report about an engine's process can be true. The job may have written it itself.

        The platform takes back a slot after ENGINE_GONE. So this report is refused while a process runs that was seen
        as the slot's engine, or while the supervisor is about to start an engine on the slot.

        Returns:
            True or False; None: this cannot be decided yet.
        """
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
            return None  # the agent does not know yet which engines the supervisor should start
        return all(slot.allocation != allocation for slot in self._desired.slots)

    @property
    def _took_its_spec(self) -> bool:
        """Whether the supervisor has written attempt.json, which it does before any user code runs."""
        return (self.spool.path.parent / ATTEMPT_FILE).exists()

    def _engines(self) -> int:
        """The number of desired engines or of running engines, whichever is larger."""
        desired_slots = len(self._desired.slots) if self._desired is not None else 0
        return max(desired_slots, len(self.spool.facts.open_engines))

    def _handle_changed(self) -> None:
        self._changed.set()
        self._wake()

    async def _keep_connected(self) -> None:
        """Send the newest desired state whenever it changes and whenever the socket was opened again."""
        pause = _RECONNECT_SECONDS
        while self.lives:
            try:
                reader, writer = await asyncio.open_unix_connection(self.record.socket)
            except OSError:
                await asyncio.sleep(pause)  # the supervisor may still import its framework
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
            # The memory limit is raised before an engine starts. It may be lowered after an engine has left.
            if self._desired is not None and self._desired != sent and self._handle.make_room_for(self._engines()):
                sent = self._desired
                writer.write(dump_line(sent))
                await writer.drain()
            await wait_until_set(self._changed, listening)

    async def _wake_on_input(self, reader: asyncio.StreamReader) -> None:
        """Wake the agent's loop at any input: the supervisor sends a line when it has written new reports."""
        with contextlib.suppress(OSError):
            while await reader.read(1 << 16):
                self._wake()


def _direction(desired: DesiredState | None) -> str:
    """Whether the attempt stays, leaves or stops. Time limits count from the last change of this value."""
    if desired is None or (desired.slots and not desired.stop):
        return "stay"
    return "stop" if desired.stop else "leave"
