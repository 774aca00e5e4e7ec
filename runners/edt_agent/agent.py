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
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any

from edt_agent.api import Api
from edt_agent.asking import Asking
from edt_agent.attempt import Attempt
from edt_agent.carrying import Carrying
from edt_agent.children import Child, Children
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
from edt_agent.errors import HomeTaken, StartFailed
from edt_agent.launch import Launcher
from edt_agent.ledger import Entry, Key, Ledger, from_attempt_file
from edt_agent.processes import alive, bearers, environment, kill
from edt_agent.settings import LIFE_VARIABLE, NODE_VARIABLE, AgentSettings
from edt_agent.slots import find_slots
from edt_agent.spool import Spool, last_word_heard
from edt_runner.contract import TAG_VARIABLE, Assignment

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_LOOK_AGAIN_SECONDS = 0.1
"""While something is dying."""
_LAST_REPORTS_SECONDS = 5.0
"""So long does an agent that goes wait for an API that does not answer; the next agent reports the rest."""
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
        self._swept = False
        self._children = Children()
        self._ledger = Ledger(settings.state_dir / "attempts")
        self._launcher = Launcher(settings, self._children, self._ledger, os.environ)
        self._api = Api(settings, find_slots(settings.devices, settings.cpu_slots))
        self._asking = Asking(settings, self._api, self._children, self._look)
        self._carrying = Carrying(self._api, self._ledger, self._attempts, self._look)

    async def run(self) -> None:
        """Work until a signal says go. Raises AgentError where the node cannot work at all."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._go, Going.ALONE)
        loop.add_signal_handler(signal.SIGINT, self._go, Going.ALL_LEAVE)
        self._children.watch()
        async with _only_one(self._settings.state_dir / "lock"):
            for entry in self._ledger:
                self._adopt(entry)
            helpers = [self._asking.go_on(), self._carrying.go_on()]
            if self._settings.warm:
                helpers.append(self._keep_warm())
            try:
                await _until_first_ends(self._work(), *helpers)
            finally:
                self._launcher.let_go()
                for attempt in self._attempts.values():
                    attempt.drop()
                await self._api.close()
                with contextlib.suppress(OSError):  # a supervisor's socket is still in it
                    self._settings.runtime_dir.rmdir()

    async def _keep_warm(self) -> None:
        """From the first answer on: before it, the API that starts beside this needs the processor more."""
        await self._asking.answered.wait()
        await self._launcher.keep_warm()

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
            if self._going is Going.ALL_DIE:
                for attempt in self._attempts.values():
                    attempt.kill()
            for action in decide(self._asking.desired, picture, self._starts, leaving=leaving, now=now):
                await self._do(action, picture)
            self._sweep_once()
            self._carrying.look()
            if leaving:
                if not all(attempt.ended for attempt in self._attempts.values()):
                    last_alive = now
                elif all(attempt.spool.all_acked for attempt in self._attempts.values()):
                    return
                elif now > last_alive + _LAST_REPORTS_SECONDS:
                    log.warning("the API has not taken all reports; they stay on disk for the next agent")
                    return
            dying = leaving or any(each.phase is not Phase.LIVE and not each.empty for each in picture.values())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN_SECONDS if dying else _LOOK_SECONDS):
                    await self._wake.wait()

    async def _do(self, action: Action, picture: Mapping[Key, Running]) -> None:
        match action:
            case Start(assignment):
                await self._start(assignment)
            case Tell(key, wish):
                self._attempts[key].tell(wish, self._clock())
            case Kill(key, why):
                log.warning("%s: killed: %s", key, why)
                self._attempts[key].kill()
            case Close(key, kind, message, None):
                log.warning("%s ended as %s: %s", key, kind, message)
                self._attempts[key].spool.close(kind, message, picture[key].code, picture[key].wish)
                self._look()
            case Close(key, kind, message, Assignment() as assignment):
                if not self._adopt_unknown(assignment):
                    log.warning("%s ended as %s: %s", key, kind, message)
                    entry = _never_started(assignment, last_word_heard(assignment.letter))
                    self._adopt(entry).spool.close(kind, message, None, assignment.wish)
            case Retry(key, why):
                log.warning("%s: %s", key, why)
                self._drop(key)
                self._failed_to_start(key, why)
            case Forget(key):
                log.info("%s is over", key)
                self._drop(key)
                self._starts.pop(key, None)

    async def _start(self, assignment: Assignment) -> None:
        if self._adopt_unknown(assignment):
            return
        key = Key(assignment.letter.job, assignment.letter.fence)
        try:
            entry, child = await self._launcher.start(assignment.letter, last_word_heard(assignment.letter))
        except (StartFailed, OSError) as error:
            log.warning("%s was not started: %s", key, error)
            self._failed_to_start(key, str(error))
            return
        log.info("%s: supervisor %d started", key, entry.pid)
        self._adopt(entry, child).tell(assignment.wish, self._clock())

    def _adopt_unknown(self, assignment: Assignment) -> bool:
        """Adopt what only its spool knows: the agent's notes were lost, and nothing may run twice under one fence.

        One whose last word the API has heard is no longer there to be adopted.
        """
        known = from_attempt_file(assignment.letter)
        if known is None or (last_word_heard(assignment.letter) and not alive(known.process)):
            return False
        self._ledger.write(known)
        self._adopt(known)
        return True

    def _failed_to_start(self, key: Key, why: str) -> None:
        failed = self._starts[key].failed + 1 if key in self._starts else 1
        self._starts[key] = Starts(failed, self._clock() + backoff_seconds(failed), why)

    def _adopt(self, entry: Entry, child: Child | None = None) -> Attempt:
        """Take a supervisor under this agent's eyes, whoever started it and whether or not it still lives."""
        if entry.key in self._attempts:  # an earlier supervisor of it, which has ended
            self._attempts.pop(entry.key).drop()
        spool = Spool(Path(entry.spool_dir), entry.key, entry.node, entry.acked, entry.before)
        attempt = self._attempts[entry.key] = Attempt(
            entry, spool, tag=self._settings.tag, now=self._clock(), wake=self._look, child=child
        )
        if child is not None:
            child.on_exit.append(self._look)
        elif attempt.lives:
            log.info("%s: supervisor %d adopted", entry.key, entry.pid)
        self._look()
        return attempt

    def _drop(self, key: Key) -> None:
        self._attempts.pop(key).drop()
        self._ledger.remove(key)

    def _sweep_once(self) -> None:
        """Once, after all that is wanted has been adopted: end what earlier agents of this node left besides."""
        if self._swept or self._asking.desired is None:
            return
        self._swept = True
        lives = self._launcher.lives() | {attempt.entry.life for attempt in self._attempts.values()}
        sessions = {attempt.entry.pid for attempt in self._attempts.values()}
        marks = {TAG_VARIABLE: self._settings.tag, NODE_VARIABLE: self._settings.name}
        strays = [
            process
            for process in bearers(marks)
            if process.session not in sessions and environment(process.id.pid).get(LIFE_VARIABLE) not in lives
        ]
        if strays:
            log.warning("%d processes that an earlier agent left belong to no attempt and are killed", len(strays))
            kill(process.id for process in strays)


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
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if asyncio.get_running_loop().time() > deadline:
                    raise HomeTaken(f"another agent works in {path.parent}; stop it or choose another --name") from None
                await asyncio.sleep(0.1)
        yield
    finally:
        os.close(handle)
