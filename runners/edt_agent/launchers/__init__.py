"""What every launcher offers the agent, whatever its supervisors run in: processes of this machine, or containers.

``process`` and ``docker`` implement it, and ``tests/agent/test_launcher_contract.py`` tests both. What may take long is
a coroutine; everything else answers at once from what is known.
"""

from __future__ import annotations

import asyncio
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edt_agent.processes import ProcessId
from edt_agent.safe_files import make_folder
from edt_agent.supervisor_records import SupervisorRecord
from edt_contract.attempt import ATTEMPT_FILE, AttemptSpec, DesiredState


class Handle(ABC):
    """One supervisor with all its descendants, whoever started it and whether or not it still runs."""

    def __init__(self, record: SupervisorRecord) -> None:
        self.record = record
        self._changed: Callable[[], None] = lambda: None

    @property
    @abstractmethod
    def lives(self) -> bool:
        """The supervisor runs, as far as is known; True also while its launcher cannot be asked."""

    @property
    @abstractmethod
    def code(self) -> int | None:
        """Its exit status, or minus the signal that ended it; None: unknown."""

    @property
    def oom(self) -> bool:
        """The kernel killed it for want of memory."""
        return False

    @property
    def last_output(self) -> str:
        """The last line that it printed before it had a log; "": unknown."""
        return ""

    @abstractmethod
    def empty(self) -> bool:
        """No process of it is left."""

    def child(self, pid: int) -> ProcessId | None:
        """The process of this machine that has this pid now, if the supervisor is its parent."""
        return None

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL to all its processes. Call it again until ``empty`` is true."""

    def make_room_for(self, engines: int) -> bool:
        """Set the limits so that this number of engines has room; whether they are set already."""
        return True

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever one of the answers above may have changed."""
        self._changed = changed

    def drop(self) -> None:
        """Stop watching it. What runs goes on."""
        self._changed = lambda: None

    @abstractmethod
    async def remove(self) -> None:
        """Remove all that is left of it.

        Raises:
            LauncherAway: try again later.
        """


@dataclass(frozen=True)
class ImageAbsent:
    """Why an image is not on this node."""

    why: str
    for_good: bool
    """Another try would fail the same way."""


class Launcher(Protocol):
    """Starts supervisors, and finds those that an earlier agent started."""

    async def start(self, spec: AttemptSpec, desired: DesiredState, before: int = 0) -> Handle:
        """Start the supervisor of an attempt. When this returns, it has its spec, and its record is written.

        Args:
            spec: the attempt.
            desired: its first desired state, of which a container's size follows.
            before: number of the last report of an earlier supervisor of this attempt here; 0: there was none.

        Raises:
            StartFailed: nothing of it runs, and no record of it is left.
        """

    def adopt(self, record: SupervisorRecord) -> Handle:
        """The handle of the supervisor that a record names."""

    async def find(self, spec: AttemptSpec) -> SupervisorRecord | None:
        """The record of an attempt that runs or ran here although the agent has no record of it; None: there is none.

        Raises:
            LauncherAway: try again later.
        """

    async def sweep(self, known: Callable[[], Collection[SupervisorRecord]]) -> int:
        """End and remove all of this node that belongs to no known record; returns how many there were."""

    async def ensure_image(self, image: str) -> ImageAbsent | None:
        """Pull a container image if it is not here; None: it is here.

        Raises:
            LauncherAway: try again later.
        """

    async def run(self, busy: asyncio.Event) -> None:
        """The launcher's work in the background, for ever. ``busy`` is set once the API has answered."""

    def close(self) -> None:
        """The agent ends: end what has no record."""


def prepare(spec: AttemptSpec, socket: Path) -> AttemptSpec:
    """Make the spool folder and free the socket's path; returns the spec with that path.

    The agent chooses the path itself: it must be short, and a file system that several nodes share may not hold
    sockets.
    """
    make_folder(Path(spec.spool_dir), 2)
    Path(spec.spool_dir, ATTEMPT_FILE).unlink(missing_ok=True)
    socket.unlink(missing_ok=True)
    return dataclasses.replace(spec, socket=str(socket))
