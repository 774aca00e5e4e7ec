"""A node that another cluster manager has given for a while (EDT_TEMPORARY): how it leaves, and when it asks whether it
may.

The node leaves after SIGTERM, or before its time is over (EDT_ENDS_AT). First the agent tells the API, which has the
jobs moved to other nodes while they train. When nothing runs here any more, or when half of the time is over, all that
is left leaves with a checkpoint, as after SIGINT. What has not left shortly before the end of the time is killed, so
that its end can still be reported. All of this works without an answer of the API, too. After EDT_IDLE_SECONDS without
an assignment the agent asks whether the node may leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edt_agent.api import Api
from edt_agent.assignments import AssignmentFetcher
from edt_agent.attempt import Attempt
from edt_agent.errors import ApiRefused, ApiUnreachable, HomeTaken, NotKnownHere, retry_seconds
from edt_agent.lock import Lock
from edt_agent.settings import AgentSettings
from edt_agent.supervisor_records import Key

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_LOCK_SECONDS = 2.0
"""Seconds between two looks at whether another agent has replaced this one's lock."""
_LEAVE_SECONDS = 120.0
"""Most seconds that engines have to write their checkpoints and leave. Otherwise they have half of the time."""
_KILL_SECONDS = 5.0
"""Most seconds before the end of the time at which the agent kills what is left. Otherwise a sixth of the time."""
_BEFORE_END_SECONDS = 60.0
"""Least seconds that a leave before EDT_ENDS_AT has."""
_SPARE_SECONDS = 10.0
"""Seconds before EDT_ENDS_AT at which the node is gone, because clocks differ."""
_SILENT_SECONDS = 3.0
"""Seconds after which a node on which nothing runs leaves without an answer of the API."""
_GONE_SECONDS = 5.0
"""Most seconds in which the API is told that the node is gone. If it is not told, the node's lease runs out."""


@dataclass(frozen=True)
class Deadlines:
    """The times of a leave, in monotonic seconds."""

    leave_at: float
    """When all that still runs is asked to leave with a checkpoint."""
    kill_at: float
    """When what has not left is killed."""
    end_at: float
    """When the agent ends even if the API has not accepted all reports."""

    @classmethod
    def within(cls, seconds: float, now: float) -> Deadlines:
        """The times of a leave that may take so many seconds; 0: there is no grace, so all leave at once, and whoever
        takes the node back kills."""
        if seconds <= 0:
            return cls(now, float("inf"), float("inf"))
        end, kill = now + seconds, min(_KILL_SECONDS, seconds / 6)
        return cls(end - min(_LEAVE_SECONDS, seconds / 2), end - kill, end - kill / 4)

    def sooner(self, other: Deadlines) -> Deadlines:
        """Of each time the earlier one."""
        return Deadlines(
            min(self.leave_at, other.leave_at), min(self.kill_at, other.kill_at), min(self.end_at, other.end_at)
        )


class Leaving:
    """How a temporary node leaves. Without EDT_TEMPORARY it does nothing.

    Args:
        settings: the agent's settings.
        api: the API.
        assignments: what the API has assigned to this node.
        attempts: the attempts that the agent knows.
        leave: called when all that runs here must leave now. May be called twice.
        kill: called when all that still runs here must be killed. May be called twice.
    """

    def __init__(
        self,
        settings: AgentSettings,
        api: Api,
        assignments: AssignmentFetcher,
        attempts: Mapping[Key, Attempt],
        *,
        leave: Callable[[], None],
        kill: Callable[[], None],
    ) -> None:
        self._settings, self._api, self._assignments, self._attempts = settings, api, assignments, attempts
        self._leave, self._kill = leave, kill
        self._clock = asyncio.get_running_loop().time
        self._deadlines: Deadlines | None = None
        self._begun = asyncio.Event()
        self._begun_at = 0.0
        self._told = False
        self._why = ""
        self.late = ""
        """Why what is left is killed, in words for a job's user; "": nothing was late."""

    @property
    def end_at(self) -> float:
        """Monotonic seconds at which the agent ends in any case; infinite: there is no such time."""
        return self._deadlines.end_at if self._deadlines is not None else float("inf")

    def taken_back(self) -> None:
        """The cluster manager takes the node back (SIGTERM). A second call changes nothing."""
        if self._why != _TAKEN_BACK:
            self._begin(_TAKEN_BACK, self._settings.leave_seconds)

    async def run(self, lock: Lock) -> None:
        """Leave when it is time, or ask when the node is idle, for ever.

        Args:
            lock: the lock of the agent's folder.

        Raises:
            HomeTaken: the node was started again on another machine.
        """
        if not self._settings.temporary:
            await asyncio.Event().wait()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_time())
                group.create_task(self._leave_once_begun())
                group.create_task(self._ask_when_idle())
                group.create_task(self._watch_lock(lock))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def end(self) -> None:
        """Report that the node is gone, once no process of any job is left, and remove the agent's own folder. If the
        API does not answer, both are left undone, so that an agent that comes after can deliver what is left."""
        if not self._settings.temporary:
            return
        reported = all(attempt.spool.all_acked for attempt in self._attempts.values())
        until = min(self._clock() + _GONE_SECONDS, self.end_at)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                if await self._tell(gone=True) and reported:
                    await asyncio.to_thread(self._remove_folder)

    def _begin(self, why: str, seconds: float) -> None:
        now = self._clock()
        times = Deadlines.within(seconds, now)
        log.info("the node leaves within %.0f s: %s", seconds, why)
        self._deadlines = times if self._deadlines is None else self._deadlines.sooner(times)
        if not self._begun.is_set():
            self._why, self._begun_at = why, now
            self._begun.set()

    async def _keep_time(self) -> None:
        """Begin a leave before EDT_ENDS_AT, and keep the times of a leave."""
        ends_at, grace = self._settings.ends_at, max(self._settings.leave_seconds, _BEFORE_END_SECONDS)
        ends = ""
        while True:
            if ends_at is not None and not ends and time.time() > ends_at - grace - _SPARE_SECONDS:
                ends = f"its time is over at {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(ends_at))}"
                self._begin(ends, max(1.0, ends_at - _SPARE_SECONDS - time.time()))
            if self._deadlines is not None:
                now = self._clock()
                if now >= self._deadlines.leave_at:
                    self._leave()
                if now >= self._deadlines.kill_at and not self.late:
                    self.late = f"it did not leave before its node ended ({self._why})"
                    self._kill()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _leave_once_begun(self) -> None:
        """Tell the API, and leave as soon as nothing runs here."""
        await self._begun.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tell_of_leave())
            while True:
                if await self._is_free():
                    break
                await asyncio.sleep(_LOOK_SECONDS)
            self._leave()

    async def _tell_of_leave(self) -> None:
        self._told = self._told or await self._tell()

    async def _is_free(self) -> bool:
        """Whether nothing runs here, and the API assigns nothing. The newest answer may be older than the leave, so the
        API is asked once more. If it does not answer, the node is free if nothing runs here."""
        if any(not attempt.ended for attempt in self._attempts.values()):
            return False
        if not self._told:
            return self._clock() > self._begun_at + _SILENT_SECONDS
        assigned = self._assignments.assigned
        if assigned is None or assigned.assignments or assigned.unreadable:
            return False
        try:
            newest = (await self._api.assignments(None, 0.0, "timer")).assigned
        except (ApiUnreachable, ApiRefused):
            return True
        return not newest.assignments and not newest.unreadable

    async def _ask_when_idle(self) -> None:
        """Ask whether the node may leave, each time when it was idle for EDT_IDLE_SECONDS."""
        seconds = self._settings.idle_seconds
        if seconds is None:
            return
        since = self._clock()
        while not self._begun.is_set():
            assigned = self._assignments.assigned
            if assigned is None or assigned.assignments or assigned.unreadable or self._attempts:
                since = self._clock()
            elif self._clock() >= since + seconds:
                why = f"no job has used it for {seconds:g} s"
                since = self._clock()
                try:
                    may = await self._api.leaving(why, if_idle=True)
                except (ApiUnreachable, ApiRefused) as error:
                    log.debug("whether the idle node may leave is not known: %s", error)
                    may = False
                if may:
                    self._told = True
                    self._begin(why, self._settings.leave_seconds)
                    self._leave()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _tell(self, *, gone: bool = False) -> bool:
        """Tell the API that the node leaves, or is gone; again and again until it answers.

        Returns:
            Whether the API has taken it.
        """
        failed = 0
        while True:
            try:
                await self._api.leaving(self._why, gone=gone)
                return True
            except (ApiUnreachable, NotKnownHere) as error:
                failed += 1
                if failed == 1:
                    log.warning(
                        "the API does not know yet that the node %s: %s", "is gone" if gone else "leaves", error
                    )
                await asyncio.sleep(retry_seconds(failed))
            except ApiRefused as error:
                log.warning("%s", error)
                return False

    async def _watch_lock(self, lock: Lock) -> None:
        while True:
            if not await asyncio.to_thread(lambda: lock.holds):
                raise HomeTaken(f"the node {self._settings.name} was started again on another machine")
            await asyncio.sleep(_LOCK_SECONDS)

    def _remove_folder(self) -> None:
        """Remove the agent's own files, because nodes of this kind are many and each has another name."""
        folder = self._settings.state_dir
        for each in (folder / "attempts", folder / "logs", self._settings.compiled):
            shutil.rmtree(each, ignore_errors=True)
        with contextlib.suppress(OSError):
            (folder / "lock").unlink()
            folder.rmdir()


_TAKEN_BACK = "its cluster manager takes it back"
