"""Room: runners, agent. A supervisor that is the first process of a container. Answers from what was seen last."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from edt_agent.container import Node, cpu_quota
from edt_agent.docker_settings import DockerSettings
from edt_agent.dockerd import Dockerd, End
from edt_agent.errors import LauncherAway
from edt_agent.processes import ProcessId

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_RUNS = frozenset({"running", "paused", "restarting", "removing", "unknown"})


class ContainerHandle:
    """See ``Handle``. The launcher tells it what it saw by ``saw``; until then nobody knows, and it counts as alive."""

    def __init__(
        self,
        container: str,
        socket: Path,
        dockerd: Dockerd,
        settings: DockerSettings,
        node: Node | None,
        *,
        guarded: bool = False,
    ) -> None:
        self.container, self._socket, self.sole_writer = container, socket, guarded
        self._dockerd, self._settings, self._node = dockerd, settings, node
        self._changed: Callable[[], None] = lambda: None
        self._state = "unknown"
        self._end: End | None = None
        self._killed = False
        self._killing: asyncio.Task[None] | None = None
        self._wanted: int | None = None
        self._has: int | None = None
        self._fitting: asyncio.Task[None] | None = None
        self.dropped = False
        """Nobody asks any more."""

    @property
    def lives(self) -> bool:
        return self._state in _RUNS

    @property
    def code(self) -> int | None:
        if self._end is None:
            return None
        code = self._end.code
        return 128 - code if 128 < code <= 128 + signal.NSIG else code

    @property
    def oom(self) -> bool:
        """The first process was killed, not by us, and the kernel has killed in this container for want of memory.

        An engine's kill is on record for the container, too; whether there was one is in the reports.
        """
        return self._end is not None and self._end.oom and self.code == -signal.SIGKILL and not self._killed

    @property
    def said(self) -> str:
        return self._end.said if self._end is not None else ""

    def empty(self) -> bool:
        """With its first process everything in a container ends."""
        return not self.lives

    def child(self, pid: int) -> ProcessId | None:
        """Its pids are the container's own, which mean nothing here."""
        return None

    def kill(self) -> None:
        if self.lives and (self._killing is None or self._killing.done()):
            self._killed = True
            self._killing = self._beside(self._kill())

    def room_for(self, engines: int) -> bool:
        self._wanted = engines
        if self._node is None:
            return True  # the daemon has not said yet what the node has; the container keeps what it has
        if self._has != engines and self.lives and (self._fitting is None or self._fitting.done()):
            self._fitting = self._beside(self._fit(self._node))
        return self._has is not None and self._has >= engines

    def has_room_for(self, engines: int) -> None:
        """It was started with as much."""
        self._has = self._wanted = engines

    def runs_on(self, node: Node) -> None:
        """What the node has is known now."""
        self._node = node

    async def saw(self, state: str | None) -> None:
        """The daemon described it so; None: it knows no such container."""
        state = state or "gone"
        if state in {"exited", "dead"} and self._end is None:
            self._end = await self._dockerd.end(self.container)
        if state != self._state:
            self._state = state
            self._changed()

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def drop(self) -> None:
        self.dropped = True
        self._changed = lambda: None
        for task in (self._killing, self._fitting):
            if task is not None:
                task.cancel()

    async def remove(self) -> None:
        await self._dockerd.remove(self.container)
        with contextlib.suppress(OSError):
            self._socket.unlink(missing_ok=True)
            self._socket.parent.rmdir()  # its own, made for it

    async def _kill(self) -> None:
        try:
            await self._dockerd.kill(self.container)
        except LauncherAway as error:
            log.warning("container %s is not killed yet: %s", self.container[:12], error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _fit(self, node: Node) -> None:
        """Until it has what is wanted. Less is given only when less is used."""
        while self._wanted is not None and self._has != self._wanted and self.lives:
            engines = self._wanted
            allowed = node.limits(self._settings, engines)
            try:
                done = await self._dockerd.limit(self.container, allowed.memory, cpu_quota(allowed))
            except LauncherAway:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if done or self._has is None:  # an adopted one that uses more than that was given more by another agent
                more = self._has is None or engines > self._has
                self._has = engines
                log.debug("container %s has room for %d engines", self.container[:12], engines)
                if more:
                    self._changed()
            else:
                await asyncio.sleep(_AGAIN_SECONDS)

    def _beside(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(what, name=f"container {self.container[:12]}")
        task.add_done_callback(_tell_defect)
        return task


def _tell_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s: stopped by a defect of ours", task.get_name(), exc_info=error)
