"""Room: runners, agent. The port to whatever supervisors run in: processes of this machine, or containers.

``process_launcher.py`` and ``docker_launcher.py`` are its two sides; ``tests/agent/test_launcher_contract.py`` holds
both to it. Nothing here waits for anything: what may take long is a coroutine, all else answers from what is known.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edt_agent.ledger import ATTEMPT_FILE, Entry, Key
from edt_agent.processes import ProcessId
from edt_agent.safe_files import make_folder
from edt_runner.contract import Letter, Wish


class Handle(Protocol):
    """One supervisor and all that descends from it, whoever started it and whether or not it still lives."""

    @property
    def lives(self) -> bool:
        """The supervisor itself does, as far as anybody knows: who cannot be asked is not dead."""

    @property
    def code(self) -> int | None:
        """Its exit status, or minus the signal that ended it, where that could be seen."""

    @property
    def oom(self) -> bool:
        """The kernel ended it for want of memory."""

    @property
    def said(self) -> str:
        """The last it printed before it could have kept a log, where that was kept for it."""

    def empty(self) -> bool:
        """Nothing of it is left."""

    @property
    def sole_writer(self) -> bool:
        """The job's own processes cannot write the supervisor's reports."""

    def child(self, pid: int) -> ProcessId | None:
        """The process of this machine that has this pid now, if the supervisor is its parent."""

    def kill(self) -> None:
        """SIGKILL to all of it. May be said again and again until it is empty."""

    def room_for(self, engines: int) -> bool:
        """See to it that so many engines have their share; whether they have it already."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call this whenever one of the answers above may have changed."""

    def drop(self) -> None:
        """Stop watching. What runs goes on."""

    async def remove(self) -> None:
        """All is said and heard: leave nothing of it behind. Raises LauncherAway, then it is asked again."""


@dataclass(frozen=True)
class Started:
    """A supervisor that has its letter and stands in the ledger."""

    entry: Entry
    handle: Handle


@dataclass(frozen=True)
class NotHere:
    """Why an image is not on this node."""

    why: str
    for_good: bool
    """Another try would end the same way."""


class Launcher(Protocol):
    """Starts supervisors and finds those that an earlier agent started."""

    async def start(self, letter: Letter, wish: Wish, before: int = 0) -> Started:
        """Start the supervisor of an attempt. When this returns, the letter is in its hands and the ledger knows it.

        ``before``: the last report of an earlier supervisor of it here. Raises StartFailed; then nothing of it runs,
        and nothing is known of it.
        """

    def adopt(self, entry: Entry) -> Handle:
        """Take hold of what an entry names."""

    async def find(self, letter: Letter) -> Entry | None:
        """The entry of an attempt that runs or ran here though the ledger does not know it. Raises LauncherAway."""

    async def sweep(self, known: Callable[[], Collection[Entry]]) -> int:
        """End and remove all of this node that belongs to no known entry; how many there were."""

    async def fetch(self, image: str) -> NotHere | None:
        """See to it that a container image is here; None when it is. Raises LauncherAway."""

    async def go_on(self, busy: asyncio.Event) -> None:
        """What it does beside, for ever. ``busy`` is set once there may be work."""

    def close(self) -> None:
        """The agent goes: give up what nobody knows yet."""


def prepared(letter: Letter, socket: Path) -> Letter:
    """The letter with a spool folder that exists and holds no earlier one's name, and a socket's path that is free.

    The agent chooses the socket's place itself: the path must be short, and a file system that several nodes
    share may not hold sockets.
    """
    make_folder(Path(letter.spool_dir), 2)
    Path(letter.spool_dir, ATTEMPT_FILE).unlink(missing_ok=True)
    socket.unlink(missing_ok=True)
    return dataclasses.replace(letter, socket=str(socket))


def key_of(letter: Letter) -> Key:
    return Key(letter.job, letter.fence)
