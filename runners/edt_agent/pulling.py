"""Room: runners, agent. Images that the API wants to be here before a job needs them, fetched one after another.

Asks the launcher and tells the API. What the API was not told it goes on wanting, so an agent that died in between
looks again and finds the image.
"""

from __future__ import annotations

import asyncio
import logging

from edt_agent.api import Api
from edt_agent.asking import Asking
from edt_agent.errors import ApiRefused, ApiUnreachable, LauncherAway, NotKnownHere
from edt_agent.launcher import Launcher

log = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
_AWAY_SECONDS = 10.0
"""After so long it is tried again where the daemon or the API did not answer."""


class Pulling:
    """``go_on`` runs for ever."""

    def __init__(self, asking: Asking, launcher: Launcher, api: Api) -> None:
        self._asking = asking
        self._launcher = launcher
        self._api = api

    async def go_on(self) -> None:
        while True:
            for image in self._asking.images:
                try:
                    missing = await self._launcher.fetch(image)
                    error = missing.why if missing is not None else ""
                    await self._api.pulled(image, error)
                except (LauncherAway, ApiUnreachable, ApiRefused, NotKnownHere) as away:
                    log.debug("image %s: %s", image, away)
                    await asyncio.sleep(_AWAY_SECONDS)
                    continue  # with the next one: perhaps it is this image at which the daemon stumbles
                # The list is as old as the last answer; what was told now need not be told again.
                self._asking.images = tuple(each for each in self._asking.images if each != image)
                if error:
                    log.warning("image %s is not on this node, and %s", image, error)
                else:
                    log.info("image %s is ready", image)
            await asyncio.sleep(_LOOK_SECONDS)
