"""How the agent learns what the API wants: it asks after a notification and by timer, or by long poll.

A notification only makes the next request come sooner, so lost, doubled and late ones change nothing. Each request says
what caused it, and the resize events that users read show that. What it wants may include container images.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from edt_agent.api import Api
from edt_agent.decide import Assigned
from edt_agent.errors import ApiRefused, ApiUnreachable, LauncherAway, NotKnownHere, retry_seconds, wait_until_set
from edt_agent.launchers import Launcher
from edt_agent.notifications import NotificationListener
from edt_agent.processes import Children
from edt_agent.settings import AgentSettings
from edt_contract.broker import node_queue

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 8.0
"""A node waits so long for its notification listener to connect before it registers without."""
_MISSED_NOTIFICATIONS = 5
"""After so many changes in a row without a notification the listener is restarted: it has lost its broker."""
_IMAGES_SECONDS = 2.0
_IMAGES_AWAY_SECONDS = 10.0
"""An image is tried again after so long, where the daemon or the API did not answer."""


class AssignmentFetcher:
    """Asks the API again and again, in ``run``. ``assigned`` is its newest answer; None: it has not answered yet."""

    def __init__(self, settings: AgentSettings, api: Api, children: Children, on_answer: Callable[[], None]) -> None:
        self.assigned: Assigned | None = None
        self.images: tuple[str, ...] = ()
        """Container images that the API wants to be ready here."""
        self.answered = asyncio.Event()
        self._settings = settings
        self._api = api
        self._children = children
        self._on_answer = on_answer
        self._notified = asyncio.Event()

    async def run(self) -> None:
        """Register and ask, for ever; register again whenever the API no longer knows the node.

        Raises:
            ApiRefused: the API refuses the node.
        """
        listener, listening = None, None
        try:
            if self._settings.broker_url is not None:
                # A registered node may be notified at once, so it listens before it registers.
                listener, listening = self._listen(self._settings.broker_url)
                await listener.connected(_CONNECT_SECONDS)
            while True:
                broker_url = usable_broker(await self._register())
                if listener is None and broker_url is not None:
                    listener, listening = self._listen(broker_url)
                try:
                    await (self._ask_by_long_poll() if listener is None else self._ask_when_notified(listener))
                except NotKnownHere as error:
                    log.warning("registering again: %s", error)
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    def _listen(self, broker_url: str) -> tuple[NotificationListener, asyncio.Task[None]]:
        queue = node_queue(self._settings.name)
        listener = NotificationListener(self._children, broker_url, queue, self._settings.tag, self._notified.set)
        return listener, asyncio.create_task(listener.run(), name="notification listener")

    async def _register(self) -> str | None:
        """The broker's URL that the API names."""
        failed = 0
        while True:
            try:
                broker_url = await self._api.register()
            except ApiUnreachable as error:
                failed += 1
                if failed in {5, 50}:
                    log.warning("not registered yet: %s", error)
                await asyncio.sleep(retry_seconds(failed))
            else:
                log.info("registered as node %s", self._settings.name)
                return broker_url

    async def _ask_when_notified(self, listener: NotificationListener) -> None:
        """With a broker: ask after a notification and by timer, until the API does not know this node."""
        version: int | None = None
        woken_by, unannounced = "start", 0
        while True:
            before = version
            version = await self._ask(version, 0.0, woken_by)
            if woken_by == "notification":
                unannounced = 0
            elif woken_by == "timer" and version != before:
                unannounced += 1
            if unannounced >= _MISSED_NOTIFICATIONS:
                log.warning("%d changes came without a notification: the listener is restarted", unannounced)
                listener.restart()
                unannounced = 0
            notified = await wait_until_set(self._notified, seconds=self._settings.agent_tick_seconds)
            woken_by = "notification" if notified else "timer"
            self._notified.clear()

    async def _ask_by_long_poll(self) -> None:
        """Without a broker: the API answers when something changes. So until the API does not know this node."""
        clock = asyncio.get_running_loop().time
        version: int | None = None
        woken_by, wait = "start", self._settings.agent_poll_seconds
        while True:
            before, asked = version, clock()
            version = await self._ask(version, wait, woken_by)
            woken_by = "timer"
            if version == before and clock() - asked < wait / 2:
                await asyncio.sleep(self._settings.agent_tick_seconds)  # this API answers at once

    async def _ask(self, version: int | None, wait: float, woken_by: str) -> int:
        """Ask until there is an answer; returns its version.

        Raises:
            NotKnownHere: the API does not know this node.
        """
        failed = 0
        while True:
            try:
                answer = await self._api.assignments(version, wait, woken_by)
            except NotKnownHere:
                await asyncio.sleep(retry_seconds(1))
                raise
            except (ApiUnreachable, ApiRefused) as error:
                failed += 1
                if failed == 1:
                    log.warning("training goes on without the API: %s", error)
                await asyncio.sleep(min(retry_seconds(failed), self._settings.agent_tick_seconds))
                continue
            if failed:
                log.info("the API answers again")
            self.assigned, self.images = answer.assigned, answer.images
            self.answered.set()
            if self._settings.alive_file is not None:
                with contextlib.suppress(OSError):  # a full disk: a health check sees that the file is old
                    self._settings.alive_file.touch()
            self._on_answer()
            return answer.version


def usable_broker(broker_url: str | None) -> str | None:
    """The broker's URL; None where it names a unix socket that this machine does not have."""
    scheme, _, path = (broker_url or "").partition("://")
    if scheme in {"redis+socket", "unix"} and not Path(path.partition("?")[0]).exists():
        return None
    return broker_url


async def keep_images(assignments: AssignmentFetcher, launcher: Launcher, api: Api) -> None:
    """Pull the images that the API wants to be here before a job needs them, one after another, for ever.

    The API lists an image until it knows how its pull ended, so an agent that died in between tries again and finds it.
    """
    while True:
        for image in assignments.images:
            try:
                missing = await launcher.ensure_image(image)
                error = missing.why if missing is not None else ""
                await api.pulled(image, error)
            except (LauncherAway, ApiUnreachable, ApiRefused) as away:
                log.debug("image %s: %s", image, away)
                await asyncio.sleep(_IMAGES_AWAY_SECONDS)
                continue  # with the next one: perhaps the daemon fails at this image only
            # The list is as old as the last answer; this image need not be reported again.
            assignments.images = tuple(each for each in assignments.images if each != image)
            if error:
                log.warning("image %s is not on this node, and %s", image, error)
            else:
                log.info("image %s is ready", image)
        await asyncio.sleep(_IMAGES_SECONDS)
