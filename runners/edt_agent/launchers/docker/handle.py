"""The handle of a supervisor that is the first process of a container. It keeps the container's last known state."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from edt_agent.docker_settings import DockerSettings
from edt_agent.errors import LauncherAway, log_defect
from edt_agent.launchers import Handle
from edt_agent.launchers.docker.container import Node, cpu_quota
from edt_agent.launchers.docker.daemon import ContainerEnd, DockerDaemon
from edt_agent.supervisor_records import SupervisorRecord

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_RUNS = frozenset({"running", "paused", "restarting", "removing", "unknown"})


class ContainerHandle(Handle):
    """The handle of a container. The launcher calls ``update`` with the container's state. Before the first call the
    container counts as running.

    Args:
        record: the supervisor's record.
        daemon: the Docker daemon.
        settings: EDT_DOCKER_*.
        node: the machine; None: its memory and cores are not known yet.
        room: the number of engines for which the container's limits were set; None: unknown.
    """

    def __init__(
        self,
        record: SupervisorRecord,
        daemon: DockerDaemon,
        settings: DockerSettings,
        node: Node | None,
        room: int | None = None,
    ) -> None:
        super().__init__(record)
        self.container, self.node = record.container, node
        self._socket = Path(record.socket)
        self._daemon, self._settings = daemon, settings
        self._state = "unknown"
        self._end: ContainerEnd | None = None
        self._killed = False
        self._killing: asyncio.Task[None] | None = None
        self._wanted = self._has = room
        self._limiting: asyncio.Task[None] | None = None
        self.dropped = False
        """Whether the agent no longer uses this handle."""

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
        """Whether the supervisor got SIGKILL, not from this agent, and the kernel has killed a process of this
        container because memory ran out. The kernel may have killed an engine instead; then a report shows that.
        """
        return self._end is not None and self._end.oom and self.code == -signal.SIGKILL and not self._killed

    @property
    def last_output(self) -> str:
        return self._end.output if self._end is not None else ""

    def empty(self) -> bool:
        """Whether no process is left. When the first process of a container ends, all others end too."""
        return not self.lives

    def kill(self) -> None:
        if self.lives and (self._killing is None or self._killing.done()):
            self._killed = True
            self._killing = self._in_background(self._kill())

    def make_room_for(self, engines: int) -> bool:
        self._wanted = engines
        if self.node is None:
            return True  # the node's size is not known yet; the container keeps its limits
        if self._has != engines and self.lives and (self._limiting is None or self._limiting.done()):
            self._limiting = self._in_background(self._set_limits(self.node))
        return self._has is not None and self._has >= engines

    async def update(self, state: str | None) -> None:
        """Take in the container's newest state; None: the daemon knows no such container.

        Raises:
            LauncherAway: the daemon does not answer.
        """
        state = state or "gone"
        if state in {"exited", "dead"} and self._end is None:
            self._end = await self._daemon.end(self.container)
        if state != self._state:
            self._state = state
            self._changed()

    def drop(self) -> None:
        super().drop()
        self.dropped = True
        for task in (self._killing, self._limiting):
            if task is not None:
                task.cancel()

    async def remove(self) -> None:
        await self._daemon.remove(self.container)
        with contextlib.suppress(OSError):
            self._socket.unlink(missing_ok=True)
            self._socket.parent.rmdir()  # the folder made for this socket

    async def _kill(self) -> None:
        try:
            await self._daemon.kill(self.container)
        except LauncherAway as error:
            log.warning("container %s is not killed yet: %s", self.container[:12], error)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _set_limits(self, node: Node) -> None:
        """Set the limits, and try again until they are as wanted. The memory limit is lowered only when the container
        uses less memory than the new limit."""
        while self._wanted is not None and self._has != self._wanted and self.lives:
            engines = self._wanted
            allowed = node.limits(self._settings, engines)
            try:
                done = await self._daemon.limit(self.container, allowed.memory, cpu_quota(allowed))
            except LauncherAway:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if done or self._has is None:  # not done and no room known: an earlier agent has set the limits
                more = self._has is None or engines > self._has
                self._has = engines
                log.debug("container %s has room for %d engines", self.container[:12], engines)
                if more:
                    self._changed()
            else:
                await asyncio.sleep(_AGAIN_SECONDS)

    def _in_background(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(what, name=f"container {self.container[:12]}")
        task.add_done_callback(log_defect)
        return task
