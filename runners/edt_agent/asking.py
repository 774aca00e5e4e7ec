"""Room: runners, agent. How the agent hears what the API wants: rung by the doorbell, on its timer, or by long poll.

Talks HTTP through ``api.py``. A ring only makes the next question come sooner; lost, doubled and late ones change
nothing. With every question goes what brought it about, which ends up in the resize events a user can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from edt_agent.api import Api, Registration
from edt_agent.children import Children
from edt_agent.decide import Desired
from edt_agent.doorbell import Doorbell
from edt_agent.errors import ApiRefused, ApiUnreachable, NotKnownHere
from edt_agent.settings import AgentSettings
from edt_runner.contract import node_queue

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.2
_RETRY_MOST_SECONDS = 5.0
_HEAR_SECONDS = 8.0
"""So long does a node wait for its doorbell before it registers without."""
_DEAF_AFTER_CHANGES = 5
"""So many changes in a row that no ring announced mean that the doorbell's worker no longer hears its broker."""


class Asking:
    """``go_on`` runs for ever; ``desired`` is what the API wanted last, None before it has ``answered``."""

    def __init__(self, settings: AgentSettings, api: Api, children: Children, on_answer: Callable[[], None]) -> None:
        self.desired: Desired | None = None
        self.images: tuple[str, ...] = ()
        """Images that the API wanted last to be ready here."""
        self.answered = asyncio.Event()
        self._settings = settings
        self._api = api
        self._children = children
        self._on_answer = on_answer
        self._rung = asyncio.Event()

    async def go_on(self) -> None:
        """Register and ask; register again whenever the API no longer knows the node. Raises where it says no."""
        doorbell, keeping = None, None
        try:
            if self._settings.broker_url is not None:
                # A node that is there can be rung: it hears before it says that it exists.
                doorbell, keeping = self._hang(self._settings.broker_url, node_queue(self._settings.name))
                await doorbell.hears(_HEAR_SECONDS)
            while True:
                registration = await self._register()
                if doorbell is None and (broker_url := reachable(registration.broker_url)) is not None:
                    doorbell, keeping = self._hang(broker_url, registration.queue)
                if doorbell is None:
                    await self._ask_by_long_poll()
                else:
                    await self._ask_when_rung(doorbell)
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)

    def _hang(self, broker_url: str, queue: str) -> tuple[Doorbell, asyncio.Task[None]]:
        doorbell = Doorbell(self._children, broker_url, queue, self._settings.tag, self._rung.set)
        return doorbell, asyncio.create_task(doorbell.keep(), name="keep the doorbell")

    async def _register(self) -> Registration:
        failed = 0
        while True:
            try:
                registration = await self._api.register()
            except ApiUnreachable as error:
                failed += 1
                if failed in {5, 50}:
                    log.warning("not registered yet: %s", error)
                await asyncio.sleep(_pause(failed))
            else:
                log.info("registered as node %s", self._settings.name)
                return registration

    async def _ask_when_rung(self, doorbell: Doorbell) -> None:
        """With a broker: ask when rung, and on the timer. Returns when the API does not know this node."""
        version: int | None = None
        woken_by, unheard = "start", 0
        while True:
            before = version
            try:
                version = await self._ask(version, 0.0, woken_by)
            except NotKnownHere as error:
                log.warning("registering again: %s", error)
                return
            if woken_by == "doorbell":
                unheard = 0
            elif woken_by == "timer" and version != before:
                unheard += 1
            if unheard >= _DEAF_AFTER_CHANGES:
                log.warning("%d changes came without a ring: the doorbell's worker starts anew", unheard)
                doorbell.restart()
                unheard = 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.agent_tick_seconds):
                    await self._rung.wait()
            woken_by = "doorbell" if self._rung.is_set() else "timer"
            self._rung.clear()

    async def _ask_by_long_poll(self) -> None:
        """Without a broker: the API holds the question open. Returns when the API does not know this node."""
        clock = asyncio.get_running_loop().time
        version: int | None = None
        woken_by, wait = "start", self._settings.agent_poll_seconds
        while True:
            before, asked = version, clock()
            try:
                version = await self._ask(version, wait, woken_by)
            except NotKnownHere as error:
                log.warning("registering again: %s", error)
                return
            woken_by = "timer"
            if version == before and clock() - asked < wait / 2:
                await asyncio.sleep(self._settings.agent_tick_seconds)  # an API that does not hold questions open

    async def _ask(self, version: int | None, wait: float, woken_by: str) -> int:
        """Ask until there is an answer. Raises NotKnownHere."""
        failed = 0
        while True:
            try:
                answer = await self._api.assignments(version, wait, woken_by)
            except NotKnownHere:
                await asyncio.sleep(_RETRY_SECONDS)
                raise
            except (ApiUnreachable, ApiRefused) as error:
                failed += 1
                if failed == 1:
                    log.warning("training goes on without the API: %s", error)
                await asyncio.sleep(min(_pause(failed), self._settings.agent_tick_seconds))
                continue
            if failed:
                log.info("the API answers again")
            self.desired, self.images = answer.desired, answer.images
            self.answered.set()
            if self._settings.alive_file is not None:
                with contextlib.suppress(OSError):  # a full disk: whoever looks at the file sees that it is old
                    self._settings.alive_file.touch()
            self._on_answer()
            return answer.version


def reachable(broker_url: str | None) -> str | None:
    """The broker, unless it is a socket on the disk of another machine."""
    scheme, _, path = (broker_url or "").partition("://")
    if scheme in {"redis+socket", "unix"} and not Path(path.partition("?")[0]).exists():
        return None
    return broker_url


def _pause(failed: int) -> float:
    return min(_RETRY_MOST_SECONDS, _RETRY_SECONDS * failed)
