"""The agent's main loop: it compares the API's assignments with the attempts that run on this node, and starts or ends
supervisors until both agree.

``assignments`` fetches the assignments. ``attempt`` watches one supervisor. ``decide`` chooses the next actions.
``launchers`` start supervisors. ``recovery`` takes over what earlier agents have left without a record.
``report_delivery`` sends reports to the API. All of them run on one event loop, so they need no locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from edt_agent.api import Api
from edt_agent.assignments import AssignmentFetcher, keep_images
from edt_agent.attempt import Attempt
from edt_agent.decide import (
    Action,
    AttemptSnapshot,
    Close,
    FailedStarts,
    Forget,
    Kill,
    Phase,
    Retry,
    SendDesired,
    Start,
    decide,
)
from edt_agent.errors import (
    ImageMissing,
    LauncherAway,
    StartFailed,
    backoff_seconds,
    log_defect,
    wait_until_set,
)
from edt_agent.launchers import Handle, Launcher
from edt_agent.launchers.process import ProcessLauncher
from edt_agent.leaving import Leaving
from edt_agent.lock import exclusive
from edt_agent.processes import Children
from edt_agent.recovery import Recovery
from edt_agent.report_delivery import ReportDelivery
from edt_agent.settings import AgentSettings
from edt_agent.slots import Slot, find_slots
from edt_agent.spool import Spool, acknowledged_end
from edt_agent.supervisor_records import Key, SupervisorRecord, SupervisorRecords
from edt_agent.usage import UsageReports
from edt_contract.attempt import Assignment
from edt_contract.crash_points import CrashPoint, crash_point

log = logging.getLogger(__name__)

_SIGNALS = {signal.SIGTERM, signal.SIGINT}
_TIMER_SECONDS = 1.0
"""Seconds between two rounds of the loop without an event."""
_BUSY_SECONDS = 0.1
"""Seconds between two rounds of the loop while the agent or a process is ending, or while reports are left to read."""
_LAST_REPORTS_SECONDS = 5.0
"""Seconds that an ending agent waits for the API to accept the last reports. The next agent delivers the others."""
_LAUNCHER_RETRY_SECONDS = 1.0
"""Seconds after which the agent tries an action again for which launcher or disk did not answer."""
_IN_PROGRESS_SECONDS = 10.0
"""Seconds that an ending agent waits for actions in progress, for example for a spec that is being written."""


class Shutdown(enum.IntEnum):
    """How the agent ends. After several signals the largest value counts. On a temporary node SIGTERM means that the
    node leaves (``leaving``), which ends with ALL_LEAVE."""

    NO = 0  # it does not end
    AGENT_ONLY = 1  # SIGTERM: training continues, and the next agent adopts the supervisors
    ALL_LEAVE = 2  # SIGINT: engines write checkpoints and leave, and the agent reports their ends
    ALL_KILLED = 3  # a second SIGINT: the agent kills all processes and reports their ends


class Agent:
    """The agent of one node. Make it inside a running event loop; ``run`` is its only public method.

    Raises:
        BadSetting: a setting cannot be used, for example because the folder for sockets cannot be made.
    """

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._clock = asyncio.get_running_loop().time
        self._shutdown = Shutdown.NO
        self._wake = asyncio.Event()
        self._attempts: dict[Key, Attempt] = {}
        self._failed_starts: dict[Key, FailedStarts] = {}
        self._in_progress: dict[Key, asyncio.Task[None]] = {}
        """Actions that take time, by attempt. Until such an action is finished, the agent does nothing else about its
        attempt."""
        self._recovering: asyncio.Task[None] | None = None
        self._children = Children()
        self._records = SupervisorRecords(settings.state_dir / "attempts")
        slots = find_slots(settings.devices, settings.cpu_slots)
        self._launcher = _launcher(settings, self._children, self._records, slots)
        self._recovery = Recovery(self._launcher, self._records, self._attempts, self._adopt)
        self._api = Api(settings, slots)
        self._assignments = AssignmentFetcher(settings, self._api, self._children, self._on_change)
        self._delivery = ReportDelivery(self._api, self._records, self._attempts, self._on_change)
        self._usage = UsageReports(settings, self._api, slots, self._attempts)
        self._leaving = Leaving(
            settings,
            self._api,
            self._assignments,
            self._attempts,
            leave=lambda: self._shut_down(Shutdown.ALL_LEAVE),
            kill=lambda: self._shut_down(Shutdown.ALL_KILLED),
        )

    async def run(self) -> None:
        """Work until a signal ends the agent.

        Raises:
            AgentError: the node cannot work, for example because another agent of this name runs.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._terminated)
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        # ``temporary`` starts the agent with these signals blocked, so that none is lost before the lines above.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        self._children.watch()
        temporary = self._settings.temporary
        async with exclusive(self._settings.state_dir / "lock", take_over=temporary) as lock:
            crash_point(CrashPoint.AGENT_START)
            for record in self._records:
                self._adopt(record)
            helpers = [self._assignments.run(), self._delivery.run(), self._launcher.run(self._assignments.answered)]
            helpers += [self._usage.run(), self._leaving.run(lock)]
            helpers += [keep_images(self._assignments, self._launcher, self._api)]
            try:
                await _run_until_one_ends(self._work(), *helpers)
                if self._shutdown >= Shutdown.ALL_LEAVE:
                    await self._leaving.end()
            finally:
                await self._finish_in_progress()
                self._launcher.close()
                for attempt in self._attempts.values():
                    attempt.drop()
                await self._api.close()
                with contextlib.suppress(OSError):  # the folder is not empty while a supervisor's socket is in it
                    self._settings.sockets.rmdir()
                # The handlers go with the event loop: a signal that comes after that would change the exit status.
                signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

    def _terminated(self) -> None:
        """SIGTERM: the agent ends. A temporary node leaves."""
        if self._settings.temporary:
            self._leaving.taken_back()
        else:
            self._shut_down(Shutdown.AGENT_ONLY)

    def _interrupted(self) -> None:
        """SIGINT: all leave. A second one kills."""
        again = self._shutdown >= Shutdown.ALL_LEAVE
        self._shut_down(Shutdown.ALL_KILLED if again else Shutdown.ALL_LEAVE)

    def _shut_down(self, how: Shutdown) -> None:
        if how > self._shutdown:
            self._shutdown = how
            log.info("the agent ends; %s", _SHUTDOWN_WORDS[how])
            self._on_change()

    def _on_change(self) -> None:
        self._wake.set()
        self._delivery.wake()

    async def _work(self) -> None:
        """After each event and by timer, decide what to do and do it, until the agent ends."""
        last_alive = self._clock()
        while self._shutdown is not Shutdown.AGENT_ONLY:
            self._wake.clear()
            now = self._clock()
            leaving = self._shutdown is not Shutdown.NO
            self._children.reap()  # a pidfd may become readable before SIGCHLD arrives
            snapshots = {key: attempt.snapshot(now) for key, attempt in self._attempts.items()}
            busy = any(each.behind for each in snapshots.values())
            if self._shutdown is Shutdown.ALL_KILLED:
                for attempt in self._attempts.values():
                    attempt.kill(self._leaving.late)
            for action in decide(self._assignments.assigned, snapshots, self._failed_starts, leaving=leaving, now=now):
                if action.key not in self._in_progress:
                    self._carry_out(action, snapshots)
            self._recover_once()
            self._delivery.wake()
            if leaving:
                if self._in_progress or not all(attempt.ended for attempt in self._attempts.values()):
                    last_alive = now
                elif all(attempt.spool.all_acked for attempt in self._attempts.values()):
                    await self._remove_all()
                    return
                elif now > min(last_alive + _LAST_REPORTS_SECONDS, self._leaving.end_at):
                    log.warning("the API has not accepted all reports; they stay on disk for the next agent")
                    return
            ending = any(each.phase is not Phase.LIVE and not each.empty for each in snapshots.values())
            quick = leaving or busy or ending
            await wait_until_set(self._wake, seconds=_BUSY_SECONDS if quick else _TIMER_SECONDS)

    def _carry_out(self, action: Action, snapshots: Mapping[Key, AttemptSnapshot]) -> None:
        match action:
            case Start() | Close(_, _, _, Assignment()) if not self._recovery.done:
                pass  # the attempt may run here without a record; the next decision repeats the action
            case Start(key, assignment):
                self._in_background(key, self._start(key, assignment))
            case SendDesired(key, desired):
                crash_point(CrashPoint.AGENT_SEND)
                self._attempts[key].set_desired(desired, self._clock())
            case Kill(key, why):
                log.warning("%s: killed: %s", key, why)
                self._attempts[key].kill(why)
            case Close(key, kind, message, None):
                log.warning("%s ended as %s: %s", key, kind, message)
                seen = snapshots[key]
                try:
                    self._attempts[key].spool.close(kind, message, seen.code, seen.desired, seen.oom)
                except OSError as error:
                    log.error("%s: its last report cannot be written yet: %s", key, error)
                    return
                self._on_change()
            case Close(key, _, _, Assignment()):
                self._in_background(key, self._close_unstarted(action))
            case Retry(key, why):
                log.warning("%s: %s", key, why)
                self._in_background(key, self._retry(key, why), "is not removed yet")
            case Forget(key):
                crash_point(CrashPoint.AGENT_FORGET)
                self._in_background(key, self._forget(key), "is not removed yet")

    def _in_background(self, key: Key, what: Coroutine[Any, Any, None], waits: str = "waits") -> None:
        """Run an action that takes time while the loop continues.

        Args:
            key: the attempt.
            what: the action.
            waits: words for the log if the launcher does not answer or the disk does not accept a record. The next
                decision repeats the action.
        """

        async def done() -> None:
            try:
                await what
            except (LauncherAway, OSError) as error:
                log.warning("%s %s: %s", key, waits, error)
                await asyncio.sleep(_LAUNCHER_RETRY_SECONDS)

        def over(task: asyncio.Task[None]) -> None:
            del self._in_progress[key]
            log_defect(task)
            self._on_change()

        task = self._in_progress[key] = asyncio.create_task(done(), name=str(key))
        task.add_done_callback(over)

    async def _finish_in_progress(self) -> None:
        """Wait for the actions in progress, and cancel those that take too long. The next agent repeats these."""
        tasks = [*self._in_progress.values(), *([self._recovering] if self._recovering is not None else [])]
        if tasks:
            await asyncio.wait(tasks, timeout=_IN_PROGRESS_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self, key: Key, assignment: Assignment) -> None:
        spec = assignment.spec
        try:
            if await self._adopt_unknown(assignment):
                return
            handle = await self._launcher.start(spec, assignment.desired, acknowledged_end(spec))
        except LauncherAway:
            raise
        except (StartFailed, OSError) as error:
            log.warning("%s was not started: %s", key, error)
            self._failed_to_start(key, str(error), hopeless=isinstance(error, ImageMissing))
            return
        crash_point(CrashPoint.AGENT_STARTED)
        log.info("%s: supervisor %s started", key, handle.record.name)
        self._adopt(handle.record, handle).set_desired(assignment.desired, self._clock())

    async def _close_unstarted(self, action: Close) -> None:
        """Write the last report of an attempt that never ran here, after a check that it does not run."""
        assignment = action.assignment
        assert assignment is not None
        if await self._adopt_unknown(assignment):
            return
        log.warning("%s ended as %s: %s", action.key, action.kind, action.message)
        ended = acknowledged_end(assignment.spec)
        before = ended if assignment.spec.gang is None else 0  # a gang ends once
        record = SupervisorRecord.of(assignment.spec, "", acked=ended, before=before)  # no process of it runs
        try:
            self._adopt(record).spool.close(action.kind, action.message, None, assignment.desired)
        except OSError as error:
            log.error("%s: its last report cannot be written yet: %s", action.key, error)
            await asyncio.sleep(_LAUNCHER_RETRY_SECONDS)

    async def _adopt_unknown(self, assignment: Assignment) -> bool:
        """Adopt a supervisor that only the launcher can find, because the agent's records were lost. Without this the
        agent could start the same attempt twice.

        Returns:
            Whether there is such a supervisor.
        """
        known = await self._launcher.find(assignment.spec)
        if known is None:
            return False
        self._records.write(known)
        self._adopt(known)
        return True

    async def _retry(self, key: Key, why: str) -> None:
        await self._remove(key)
        self._failed_to_start(key, why)

    async def _forget(self, key: Key) -> None:
        await self._remove(key)
        log.info("%s is over", key)
        self._failed_starts.pop(key, None)

    async def _remove(self, key: Key) -> None:
        """Drop an attempt and remove the process or container that it ran in. If the launcher does not answer, the
        attempt stays and is removed later."""
        await self._attempts[key].remove()
        self._attempts.pop(key).drop()
        self._records.remove(key)

    async def _remove_all(self) -> None:
        """Remove the processes or containers of the ended attempts, as far as the launcher answers in time."""
        removed = [attempt.remove() for attempt in self._attempts.values()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_IN_PROGRESS_SECONDS):
                await asyncio.gather(*removed, return_exceptions=True)

    def _failed_to_start(self, key: Key, why: str, *, hopeless: bool = False) -> None:
        failed = self._failed_starts[key].failed + 1 if key in self._failed_starts else 1
        self._failed_starts[key] = FailedStarts(failed, self._clock() + backoff_seconds(failed), why, hopeless)

    def _adopt(self, record: SupervisorRecord, handle: Handle | None = None) -> Attempt:
        """Watch a supervisor from now on. This agent or an earlier one has started it, and it may have ended."""
        if record.key in self._attempts:  # an earlier supervisor of this attempt, which has ended
            self._attempts.pop(record.key).drop()
        spool = Spool(Path(record.spool_dir), record.key, record.node, record.acked, record.before)
        held = handle or self._launcher.adopt(record)
        attempt = self._attempts[record.key] = Attempt(spool, held, now=self._clock(), wake=self._on_change)
        if handle is None and attempt.lives:
            log.info("%s: supervisor %s adopted", record.key, record.name)
        self._on_change()
        return attempt

    def _recover_once(self) -> None:
        """After the API's first answer, take over what earlier agents of this node have left."""
        if self._recovering is None and self._assignments.assigned is not None:
            self._recovering = asyncio.create_task(self._recovery.run(self._assignments.assigned), name="recovery")
            self._recovering.add_done_callback(log_defect)
            self._recovering.add_done_callback(lambda _: self._on_change())


def _launcher(
    settings: AgentSettings, children: Children, records: SupervisorRecords, slots: Sequence[Slot]
) -> Launcher:
    if settings.docker is None:
        return ProcessLauncher(settings, children, records, os.environ)
    from edt_agent.launchers.docker.launcher import DockerLauncher  # needs an extra, Docker's SDK

    return DockerLauncher(settings, settings.docker, records, slots)


_SHUTDOWN_WORDS = {
    Shutdown.AGENT_ONLY: "all training goes on",
    Shutdown.ALL_LEAVE: "all training writes a checkpoint and leaves",
    Shutdown.ALL_KILLED: "all training is killed",
}


async def _run_until_one_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all coroutines until one of them ends or fails; then cancel the others."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
