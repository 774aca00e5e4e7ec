"""One container as the agent holds it: what it answers from what was seen last. The daemon is played."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from edt_agent.docker_settings import GIB, DockerSettings
from edt_agent.errors import LauncherAway
from edt_agent.launchers.docker.container import Node
from edt_agent.launchers.docker.daemon import ContainerEnd
from edt_agent.launchers.docker.handle import ContainerHandle
from edt_agent.slots import Slot
from edt_agent.supervisor_records import SupervisorRecord

SETTINGS = DockerSettings(data=Path("/data"), memory_base=GIB, memory_per_slot=GIB)
NODE = Node("n1", "tag", (Slot("0", "cpu", ""), Slot("1", "cpu", "")), 16 * GIB, 4)


class Daemon:
    """Says how a container ended, takes limits unless it is away or more is used."""

    def __init__(self, end: ContainerEnd | None = None) -> None:
        self.how, self.away, self.used = end, False, 0
        self.limits: list[int] = []

    async def end(self, container: str) -> ContainerEnd | None:
        return self.how

    async def kill(self, container: str) -> None:
        """Done."""

    async def limit(self, container: str, memory: int, cpu_quota: int) -> bool:
        if self.away:
            raise LauncherAway("away")
        if memory < self.used:
            return False
        self.limits.append(memory // GIB)
        return True


def with_handle(daemon: Daemon, play: Callable[[ContainerHandle], Awaitable[None]], room: int | None = None) -> None:
    async def run() -> None:
        record = SupervisorRecord("edt-1", 1, "n1", "/nowhere", "/nowhere/socket", 0.1, container="c")
        handle = ContainerHandle(record, daemon, SETTINGS, NODE, room)  # type: ignore[arg-type]
        try:
            await play(handle)
        finally:
            handle.drop()

    asyncio.run(run())


def test_until_it_was_seen_it_counts_as_alive() -> None:
    async def play(handle: ContainerHandle) -> None:
        assert handle.lives and not handle.empty()
        await handle.update("running")
        assert handle.lives and handle.code is None
        await handle.update(None)
        assert not handle.lives and handle.empty() and handle.code is None

    with_handle(Daemon(), play)


@pytest.mark.parametrize(
    ("end", "code", "oom"),
    [
        (ContainerEnd(0, False, ""), 0, False),
        (ContainerEnd(3, False, "x"), 3, False),
        (ContainerEnd(137, False, ""), -signal.SIGKILL, False),
        (ContainerEnd(137, True, ""), -signal.SIGKILL, True),
        (ContainerEnd(143, True, ""), -signal.SIGTERM, False),
        (ContainerEnd(1, True, ""), 1, False),
    ],
)
def test_how_it_ended_is_told_as_of_a_process(end: ContainerEnd, code: int, oom: bool) -> None:
    async def play(handle: ContainerHandle) -> None:
        await handle.update("exited")
        assert (handle.code, handle.oom, handle.last_output) == (code, oom, end.output)

    with_handle(Daemon(end), play)


def test_what_we_killed_ourselves_did_not_die_of_memory() -> None:
    async def play(handle: ContainerHandle) -> None:
        handle.kill()
        await handle.update("exited")
        assert (handle.code, handle.oom) == (-signal.SIGKILL, False)

    with_handle(Daemon(ContainerEnd(137, True, "")), play)


def test_it_says_when_something_has_changed_and_only_then() -> None:
    async def play(handle: ContainerHandle) -> None:
        changes: list[bool] = []
        handle.watch(lambda: changes.append(handle.lives))
        for state in ("running", "running", "exited", "exited"):
            await handle.update(state)
        assert changes == [True, False]

    with_handle(Daemon(ContainerEnd(0, False, "")), play)


def test_engines_have_room_before_they_come_and_it_is_taken_back_when_it_is_not_used() -> None:
    daemon = Daemon()

    async def play(handle: ContainerHandle) -> None:
        assert handle.make_room_for(1) and not handle.make_room_for(2), "not yet"
        await asyncio.sleep(0.01)
        assert handle.make_room_for(2)
        assert handle.make_room_for(1), "whoever goes is not kept waiting"
        await asyncio.sleep(0.01)
        assert daemon.limits == [3, 2]

    with_handle(daemon, play, room=1)


def test_while_the_daemon_is_away_nobody_comes_and_all_may_go() -> None:
    daemon = Daemon()
    daemon.away = True

    async def play(handle: ContainerHandle) -> None:
        assert handle.make_room_for(1)
        assert not handle.make_room_for(3)
        await asyncio.sleep(0.01)
        assert not handle.make_room_for(3)

    with_handle(daemon, play, room=2)


def test_an_adopted_one_that_uses_more_than_its_share_keeps_what_it_has() -> None:
    daemon = Daemon()
    daemon.used = 9 * GIB

    async def play(handle: ContainerHandle) -> None:
        assert not handle.make_room_for(1), "nobody knows yet what it was given"
        await asyncio.sleep(0.01)
        assert handle.make_room_for(1)
        assert daemon.limits == []

    with_handle(daemon, play)
