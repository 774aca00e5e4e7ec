"""The interface of launchers. A launcher starts supervisors, either as processes of this machine or in containers.

``process`` and ``docker`` implement the interface, and ``tests/agent/test_launcher_contract.py`` tests both. Methods
that may take long are coroutines. All other methods return at once what is already known.
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
    """One supervisor with all its descendants. This agent or an earlier one has started it, and it may have ended.

    Args:
        record: the supervisor's record.
    """

    def __init__(self, record: SupervisorRecord) -> None:
        self.record = record
        self._changed: Callable[[], None] = lambda: None

    @property
    @abstractmethod
    def lives(self) -> bool:
        """Whether the supervisor runs, as far as the agent knows. True also while the Docker daemon does not answer."""

    @property
    @abstractmethod
    def code(self) -> int | None:
        """The supervisor's exit status, or minus the signal that ended it; None: unknown."""

    @property
    def oom(self) -> bool:
        """Whether the kernel killed the supervisor because memory ran out."""
        return False

    @property
    def last_output(self) -> str:
        """The last line that the supervisor printed before it had a log; "": unknown."""
        return ""

    @abstractmethod
    def empty(self) -> bool:
        """Whether no process of the supervisor is left, itself included."""

    def child(self, pid: int) -> ProcessId | None:
        """The process of this machine that has this pid now; None: the supervisor is not its parent, or unknown."""
        return None

    @abstractmethod
    def kill(self) -> None:
        """Send SIGKILL to the supervisor and all its processes. Call this again until ``empty`` is true."""

    def make_room_for(self, engines: int) -> bool:
        """Set memory and processor limits for this number of engines.

        Returns:
            Whether the present limits have room for this number of engines.
        """
        return True

    def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever one of the values above may have changed."""
        self._changed = changed

    def drop(self) -> None:
        """Stop watching the supervisor. Its processes continue."""
        self._changed = lambda: None

    @abstractmethod
    async def remove(self) -> None:
        """Remove everything that is left of the supervisor, except its spool.

        Raises:
            LauncherAway: the Docker daemon does not answer; try again later.
        """


@dataclass(frozen=True)
class ImageAbsent:
    """Why an image is not on this node."""

    why: str
    for_good: bool
    """Whether another try would fail in the same way."""


class Launcher(Protocol):
    """Starts supervisors, and finds those that an earlier agent started."""

    async def start(self, spec: AttemptSpec, desired: DesiredState, before: int = 0) -> Handle:
        """Start the supervisor of an attempt. When this returns, the supervisor has its spec and a record on disk.

        Args:
            spec: the attempt.
            desired: the first desired state; it determines a container's limits.
            before: number of the last report of an earlier supervisor of this attempt on this node; 0: there was none.

        Raises:
            StartFailed: the supervisor could not be started. No process and no record of it is left.
        """

    def adopt(self, record: SupervisorRecord) -> Handle:
        """The handle of the supervisor that a record names.

        Raises:
            BadSetting: this launcher cannot watch such a supervisor.
        """

    async def find(self, spec: AttemptSpec) -> SupervisorRecord | None:
        """Search for a supervisor of an attempt that runs or ran here although the agent has no record of it.

        Returns:
            A record of the supervisor; None: there is no such supervisor.

        Raises:
            LauncherAway: the Docker daemon does not answer; try again later.
        """

    async def sweep(self, known: Callable[[], Collection[SupervisorRecord]]) -> int:
        """End and remove processes or containers of this node that belong to no record of ``known()``. The agent starts
        no supervisor before the first call has returned.

        Returns:
            The number of processes or containers that were ended.

        Raises:
            StartFailed: a container cannot be removed; try again later.
        """

    async def ensure_image(self, image: str) -> ImageAbsent | None:
        """Pull a container image if it is not on this node.

        Returns:
            None if the image is here now, else why it is not.

        Raises:
            LauncherAway: the Docker daemon does not answer; try again later.
        """

    async def run(self, busy: asyncio.Event) -> None:
        """Do the launcher's background work, for ever. ``busy`` is set once the API has answered."""

    def close(self) -> None:
        """End supervisors that have no record. The agent calls this when it ends."""


def prepare(spec: AttemptSpec, socket: Path) -> AttemptSpec:
    """Make the spool folder, and remove an old attempt.json and an old socket.

    The agent chooses the socket's path itself, because the path must be short, and a file system that several nodes
    share may not support sockets.

    Args:
        spec: the attempt.
        socket: the path for the supervisor's socket.

    Returns:
        The spec with the socket's path.

    Raises:
        OSError: the folder cannot be made, or an old file cannot be removed.
    """
    make_folder(Path(spec.spool_dir), 2)
    Path(spec.spool_dir, ATTEMPT_FILE).unlink(missing_ok=True)
    socket.unlink(missing_ok=True)
    return dataclasses.replace(spec, socket=str(socket))
