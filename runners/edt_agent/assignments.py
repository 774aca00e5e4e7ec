"""Fetches the assignments from the API. With a broker the agent asks after each notification and by timer; without a
broker it uses long polls.

A notification only makes the next request come sooner, so a lost, doubled or late notification does no harm. Each
request names its cause, and the resize events show it to users. The API's answer also lists container images that this
node should pull.
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
"""Seconds that a node waits for its notification listener to connect. After that it registers anyway."""
_MISSED_NOTIFICATIONS = 5
"""After this number of changes in a row without a notification, the agent restarts the listener, because the listener
may have lost its broker."""
_IMAGES_SECONDS = 2.0
_IMAGES_AWAY_SECONDS = 10.0
"""Seconds after which an image is tried again if the Docker daemon or the API did not answer."""


class AssignmentFetcher:
    """Asks the API for assignments again and again, in ``run``.

    ``assigned`` has the assignments of the newest answer; None: the API has not answered yet. ``answered`` is set after
    the first answer. ``on_answer`` is called after each answer.
    """

    def __init__(self, settings: AgentSettings, api: Api, children: Children, on_answer: Callable[[], None]) -> None:
        self.assigned: Assigned | None = None
        self.images: tuple[str, ...] = ()
        """Container images that this node should pull."""
        self.answered = asyncio.Event()
        self._settings = settings
        self._api = api
        self._children = children
        self._on_answer = on_answer
        self._notified = asyncio.Event()

    async def run(self) -> None:
        """Register, and ask for assignments for ever. Register again whenever the API no longer knows the node.

        Raises:
            ApiRefused: the API refuses the registration.
            BadSetting: the file with the join token cannot be read.
        """
        listener, listening = None, None
        try:
            if self._settings.broker_url is not None:
                # The listener must run before registration, because notifications may come right after it.
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
        """Register, and try again while the API does not answer; returns the broker's URL."""
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
        """With a broker: ask after each notification and by timer, until NotKnownHere ends the loop."""
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
        """Without a broker: ask by long poll, to which the API answers when something changes, until NotKnownHere ends
        the loop."""
        clock = asyncio.get_running_loop().time
        version: int | None = None
        woken_by, wait = "start", self._settings.agent_poll_seconds
        while True:
            before, asked = version, clock()
            version = await self._ask(version, wait, woken_by)
            woken_by = "timer"
            if version == before and clock() - asked < wait / 2:
                await asyncio.sleep(self._settings.agent_tick_seconds)  # this API answered before the time was over

    async def _ask(self, version: int | None, wait: float, woken_by: str) -> int:
        """Ask until the API answers; returns the version of its answer.

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
                with contextlib.suppress(OSError):  # the disk is full; a health check notices the old file
                    self._settings.alive_file.touch()
            self._on_answer()
            return answer.version


def usable_broker(broker_url: str | None) -> str | None:
    """The broker's URL; None if it is None or names a unix socket that does not exist on this machine."""
    scheme, _, path = (broker_url or "").partition("://")
    if scheme in {"redis+socket", "unix"} and not Path(path.partition("?")[0]).exists():
        return None
    return broker_url


async def keep_images(assignments: AssignmentFetcher, launcher: Launcher, api: Api) -> None:
    """Pull the images that the API lists, one after another, for ever, so that they are here before a job needs them.

    The API lists an image until the agent has reported how the pull ended. If the agent dies between the pull and the
    report, the next agent finds the image and reports it.
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
                continue  # with the next image, because the daemon may fail only for this one
            # The list comes from the API's last answer; without this the image would be reported again.
            assignments.images = tuple(each for each in assignments.images if each != image)
            if error:
                log.warning("image %s is not on this node, and %s", image, error)
            else:
                log.info("image %s is ready", image)
        await asyncio.sleep(_IMAGES_SECONDS)
