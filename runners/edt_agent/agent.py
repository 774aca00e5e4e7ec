"""Room: runners, agent. The loop: look at what the API wants and at what runs, and do the difference.

Everything happens on one event loop, so there is nothing to lock. Next: ``decide.py`` for what is done and why,
``asking.py`` and ``carrying.py`` for what comes in and goes out, ``attempt.py`` for one supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import fcntl
import logging
import os
import signal
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from edt_agent.api import Api
from edt_agent.asking import Asking
from edt_agent.attempt import Attempt
from edt_agent.carrying import Carrying
from edt_agent.children import Children
from edt_agent.decide import (
    Action,
    Close,
    Forget,
    Kill,
    Phase,
    Retry,
    Running,
    Start,
    Starts,
    Tell,
    backoff_seconds,
    decide,
)
from edt_agent.errors import HomeTaken, ImageMissing, LauncherAway, StartFailed
from edt_agent.launcher import Handle, Launcher
from edt_agent.ledger import Entry, Key, Ledger
from edt_agent.process_launcher import ProcessLauncher
from edt_agent.pulling import Pulling
from edt_agent.settings import AgentSettings
from edt_agent.slots import Slot, find_slots
from edt_agent.spool import Spool, last_word_heard
from edt_agent.usage import Usage
from edt_runner.contract import Assignment
from edt_runner.crash_points import CrashPoint, crash_point

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 0.1
"""While something is dying."""
_LAST_REPORTS_SECONDS = 5.0
"""So long does an agent that goes wait for an API that does not answer; the next agent reports the rest."""
_AWAY_SECONDS = 1.0
"""After so long a launcher that did not answer is asked again."""
_BEGUN_SECONDS = 10.0
"""So long does an agent that goes wait for what it has begun: a letter that is being handed over, say."""
_LOCK_SECONDS = 15.0
"""So long may the agent before this one take to go."""


class Going(enum.IntEnum):
    """How the agent goes, the worse one wins."""

    STAYS = 0  # it does not
    ALONE = 1  # SIGTERM: supervisors train on, the next agent adopts them
    ALL_LEAVE = 2  # SIGINT: supervisors checkpoint and leave, their ends are reported
    ALL_DIE = 3  # a second SIGINT: everything is killed, their ends are reported


class Agent:
    """One node's agent. Made inside a running event loop; ``run`` is all there is to call."""

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings
        self._clock = asyncio.get_running_loop().time
        self._going = Going.STAYS
        self._wake = asyncio.Event()
        self._attempts: dict[Key, Attempt] = {}
        self._starts: dict[Key, Starts] = {}
        self._begun: dict[Key, asyncio.Task[None]] = {}
        """What takes its time, by the attempt it is about; of these nothing else is decided meanwhile."""
        self._sweeping: asyncio.Task[None] | None = None
        self._children = Children()
        self._ledger = Ledger(settings.state_dir / "attempts")
        slots = find_slots(settings.devices, settings.cpu_slots)
        self._launcher = _launcher(settings, self._children, self._ledger, slots)
        self._api = Api(settings, slots)
        self._asking = Asking(settings, self._api, self._children, self._look)
        self._carrying = Carrying(self._api, self._ledger, self._attempts, self._look)
        self._pulling = Pulling(self._asking, self._launcher, self._api)
        self._usage = Usage(settings, self._api, slots, self._attempts)

    async def run(self) -> None:
        """Work until a signal says go. Raises AgentError where the node cannot work at all."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._go, Going.ALONE)
        loop.add_signal_handler(signal.SIGINT, self._go, Going.ALL_LEAVE)
        self._children.watch()
        async with _only_one(self._settings.state_dir / "lock"):
            crash_point(CrashPoint.AGENT_START)
            for entry in self._ledger:
                self._adopt(entry)
            helpers = [self._asking.go_on(), self._carrying.go_on(), self._launcher.go_on(self._asking.answered)]
            helpers += [self._usage.go_on(), self._pulling.go_on()]
            try:
                await _until_first_ends(self._work(), *helpers)
            finally:
                await self._end_what_is_begun()
                self._launcher.close()
                for attempt in self._attempts.values():
                    attempt.drop()
                await self._api.close()
                with contextlib.suppress(OSError):  # a supervisor's socket is still in it
                    self._settings.sockets.rmdir()

    def _go(self, how: Going) -> None:
        if how is Going.ALL_LEAVE and self._going >= Going.ALL_LEAVE:
            how = Going.ALL_DIE
        self._going = max(self._going, how)
        log.info("going; %s", _GOING_WORDS[self._going])
        self._look()

    def _look(self) -> None:
        self._wake.set()
        self._carrying.look()

    async def _work(self) -> None:
        """Decide and do, after everything that happens, until there is reason to go."""
        last_alive = self._clock()
        while self._going is not Going.ALONE:
            self._wake.clear()
            now = self._clock()
            leaving = self._going is not Going.STAYS
            self._children.reap()  # a pidfd may speak before SIGCHLD does
            picture = {key: attempt.look(now) for key, attempt in self._attempts.items()}
            busy = any(each.behind for each in picture.values())
            if self._going is Going.ALL_DIE:
                for attempt in self._attempts.values():
                    attempt.kill()
            for action in decide(self._asking.desired, picture, self._starts, leaving=leaving, now=now):
                if _about(action) not in self._begun:
                    self._do(action, picture)
            self._sweep_once()
            self._carrying.look()
            if leaving:
                if self._begun or not all(attempt.ended for attempt in self._attempts.values()):
                    last_alive = now
                elif all(attempt.spool.all_acked for attempt in self._attempts.values()):
                    await self._remove_all()
                    return
                elif now > last_alive + _LAST_REPORTS_SECONDS:
                    log.warning("the API has not taken all reports; they stay on disk for the next agent")
                    return
            dying = leaving or busy or any(each.phase is not Phase.LIVE and not each.empty for each in picture.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_SECONDS if dying else _LOOK_SECONDS):
                    await self._wake.wait()

    def _do(self, action: Action, picture: Mapping[Key, Running]) -> None:
        match action:
            case Start(assignment):
                self._begin(_about(action), self._start(assignment))
            case Tell(key, wish):
                crash_point(CrashPoint.AGENT_TELL)
                self._attempts[key].tell(wish, self._clock())
            case Kill(key, why):
                log.warning("%s: killed: %s", key, why)
                self._attempts[key].kill()
            case Close(key, kind, message, None):
                log.warning("%s ended as %s: %s", key, kind, message)
                seen = picture[key]
                try:
                    self._attempts[key].spool.close(kind, message, seen.code, seen.wish, seen.oom)
                except OSError as error:
                    log.error("%s: its last word cannot be written yet: %s", key, error)
                    return
                self._look()
            case Close(key, _, _, Assignment()):
                self._begin(key, self._close_unstarted(action))
            case Retry(key, why):
                log.warning("%s: %s", key, why)
                self._begin(key, self._retry(key, why))
            case Forget(key):
                crash_point(CrashPoint.AGENT_FORGET)
                self._begin(key, self._forget(key))

    def _begin(self, key: Key, what: Coroutine[Any, Any, None]) -> None:
        """Do what takes its time beside everything else."""

        def over(task: asyncio.Task[None]) -> None:
            del self._begun[key]
            _tell_defect(task)
            self._look()

        task = self._begun[key] = asyncio.create_task(what, name=str(key))
        task.add_done_callback(over)

    async def _end_what_is_begun(self) -> None:
        """Let what is under way come to its end; what does not in time is found by the next agent."""
        tasks = [*self._begun.values(), *([self._sweeping] if self._sweeping is not None else [])]
        if tasks:
            await asyncio.wait(tasks, timeout=_BEGUN_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self, assignment: Assignment) -> None:
        letter = assignment.letter
        key = Key(letter.job, letter.fence)
        try:
            if await self._adopt_unknown(assignment):
                return
            started = await self._launcher.start(letter, assignment.wish, last_word_heard(letter))
        except LauncherAway as error:
            log.warning("%s waits: %s", key, error)
            await asyncio.sleep(_AWAY_SECONDS)
            return
        except (StartFailed, OSError) as error:
            log.warning("%s was not started: %s", key, error)
            self._failed_to_start(key, str(error), hopeless=isinstance(error, ImageMissing))
            return
        crash_point(CrashPoint.AGENT_STARTED)
        log.info("%s: supervisor %s started", key, started.entry.name)
        self._adopt(started.entry, started.handle).tell(assignment.wish, self._clock())

    async def _close_unstarted(self, action: Close) -> None:
        """Say the last word of an attempt that never ran here, once it is certain that it does not."""
        assignment = action.assignment
        assert assignment is not None
        try:
            if await self._adopt_unknown(assignment):
                return
        except (LauncherAway, OSError) as error:  # the launcher, or the disk with the ledger
            log.warning("%s waits: %s", action.key, error)
            await asyncio.sleep(_AWAY_SECONDS)
            return
        log.warning("%s ended as %s: %s", action.key, action.kind, action.message)
        entry = _never_started(assignment, last_word_heard(assignment.letter))
        try:
            self._adopt(entry).spool.close(action.kind, action.message, None, assignment.wish)
        except OSError as error:
            log.error("%s: its last word cannot be written yet: %s", action.key, error)
            await asyncio.sleep(_AWAY_SECONDS)

    async def _adopt_unknown(self, assignment: Assignment) -> bool:
        """Adopt what only the launcher can find: the agent's notes were lost, and nothing may run twice under one
        fence."""
        known = await self._launcher.find(assignment.letter)
        if known is None:
            return False
        self._ledger.write(known)
        self._adopt(known)
        return True

    async def _retry(self, key: Key, why: str) -> None:
        if await self._leave_nothing(key):
            self._failed_to_start(key, why)

    async def _forget(self, key: Key) -> None:
        if await self._leave_nothing(key):
            log.info("%s is over", key)
            self._starts.pop(key, None)

    async def _leave_nothing(self, key: Key) -> bool:
        """Drop an attempt and what it ran in. Where that cannot be done now, it stays known and is done later."""
        try:
            await self._attempts[key].remove()
        except LauncherAway as error:
            log.warning("%s is not removed yet: %s", key, error)
            await asyncio.sleep(_AWAY_SECONDS)
            return False
        self._attempts.pop(key).drop()
        self._ledger.remove(key)
        return True

    async def _remove_all(self) -> None:
        """The agent goes and everything has ended: what it ran in goes as well, as far as that can be had at once."""
        removed = [attempt.remove() for attempt in self._attempts.values()]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_BEGUN_SECONDS):
                await asyncio.gather(*removed, return_exceptions=True)

    def _failed_to_start(self, key: Key, why: str, *, hopeless: bool = False) -> None:
        failed = self._starts[key].failed + 1 if key in self._starts else 1
        self._starts[key] = Starts(failed, self._clock() + backoff_seconds(failed), why, hopeless)

    def _adopt(self, entry: Entry, handle: Handle | None = None) -> Attempt:
        """Take a supervisor under this agent's eyes, whoever started it and whether or not it still lives."""
        if entry.key in self._attempts:  # an earlier supervisor of it, which has ended
            self._attempts.pop(entry.key).drop()
        spool = Spool(Path(entry.spool_dir), entry.key, entry.node, entry.acked, entry.before)
        held = handle or self._launcher.adopt(entry)
        attempt = self._attempts[entry.key] = Attempt(entry, spool, held, now=self._clock(), wake=self._look)
        if handle is None and attempt.lives:
            log.info("%s: supervisor %s adopted", entry.key, entry.name)
        self._look()
        return attempt

    def _sweep_once(self) -> None:
        """Once, after all that is wanted has been adopted: end what earlier agents of this node left besides."""
        if self._sweeping is None and self._asking.desired is not None and not self._begun:
            self._sweeping = asyncio.create_task(self._sweep(), name="sweep")
            self._sweeping.add_done_callback(_tell_defect)

    async def _sweep(self) -> None:
        strays = await self._launcher.sweep(lambda: [attempt.entry for attempt in self._attempts.values()])
        if strays:
            log.warning("%d strays of an earlier agent, which belong to no attempt, were ended", strays)


def _launcher(settings: AgentSettings, children: Children, ledger: Ledger, slots: Sequence[Slot]) -> Launcher:
    if settings.docker is None:
        return ProcessLauncher(settings, children, ledger, os.environ)
    from edt_agent.docker_launcher import DockerLauncher  # its SDK is an extra

    return DockerLauncher(settings, settings.docker, ledger, slots)


def _about(action: Action) -> Key:
    match action:
        case Start(assignment):
            return Key(assignment.letter.job, assignment.letter.fence)
        case _:
            return action.key


def _tell_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s: stopped by a defect of ours", task.get_name(), exc_info=error)


_GOING_WORDS = {
    Going.ALONE: "all training goes on",
    Going.ALL_LEAVE: "all training writes a checkpoint and leaves",
    Going.ALL_DIE: "all training is killed",
}


def _never_started(assignment: Assignment, before: int) -> Entry:
    """The entry of an attempt that has no process: there is only a last word to carry."""
    letter = assignment.letter
    names = (letter.job, letter.fence, letter.node, letter.spool_dir)
    return Entry(*names, "", letter.grace_seconds, 0, 0, "", acked=before, before=before)


async def _until_first_ends(*parts: Coroutine[Any, Any, None]) -> None:
    """Run all until one of them ends or fails, which is then the end of all."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _only_one(path: Path) -> AsyncIterator[None]:
    """Hold the lock of this home and name; the agent before may need a moment to go."""
    deadline = asyncio.get_running_loop().time() + _LOCK_SECONDS
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    told = False
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    log.info("another agent works in %s; waiting for it to end", path.parent)
                    told = True
                if asyncio.get_running_loop().time() > deadline:
                    raise HomeTaken(f"another agent works in {path.parent}; stop it or choose another --name") from None
                await asyncio.sleep(0.1)
        yield
    finally:
        os.close(handle)
