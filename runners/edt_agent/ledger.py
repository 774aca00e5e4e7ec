"""Room: runners, agent. What the agent writes down about each supervisor it started, so that the next agent finds it.

Touches only ``<state_dir>/attempts``. An entry is on disk before a supervisor gets its letter and is removed when the
API has the attempt's last report; so no agent can start an attempt a second time or forget one. Letters carry
secrets, so nothing of a letter's environment is in here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from edt_agent import safe_files
from edt_agent.processes import ProcessId
from edt_runner.contract import Letter

log = logging.getLogger(__name__)

ATTEMPT_FILE = "attempt.json"
"""In which a supervisor says who it is, before anything of the user's runs."""
_ATTEMPT_BYTES = 4096
_OF_THE_JOB = 3
"""Last components of its path that the job could have put something else in the place of."""


class Key(NamedTuple):
    """An attempt, as this node names it."""

    job: str
    fence: int

    def __str__(self) -> str:
        return f"{self.job}/{self.fence}"


@dataclass(frozen=True)
class Entry:
    """One supervisor, from before it got its letter until the API has its last report."""

    job: str
    fence: int
    node: str
    spool_dir: str
    socket: str
    grace_seconds: float
    pid: int
    starttime: int
    life: str
    """Value of EDT_LIFE in the supervisor and all its descendants; "" where nobody knows it any more."""
    acked: int = 0
    """Number of the last report that the API has. May be behind, never ahead."""
    before: int = 0
    """Number of the last report of an earlier supervisor of this attempt that ended here: what came until then is
    no word of this one's. 0: it is the first."""
    container: str = ""
    """Id of the container whose first process the supervisor is; "": it is a process of this machine."""
    guarded: bool = False
    """The job's code runs as another user than the supervisor, and cannot write its reports."""

    @property
    def key(self) -> Key:
        return Key(self.job, self.fence)

    @property
    def name(self) -> str:
        """How a person finds it on this machine."""
        return f"container {self.container[:12]}" if self.container else str(self.pid)

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.starttime)


class Ledger:
    """The entries of one agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, entry: Entry, *, durable: bool = True) -> None:
        """Put an entry down, in place of the one with its key."""
        write_whole(self._path(entry.key), asdict(entry), durable=durable)

    def remove(self, key: Key) -> None:
        self._path(key).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Entry]:
        for path in sorted(self._folder.glob("*.json")):
            try:
                yield Entry(**json.loads(path.read_text()))
            except (OSError, ValueError, TypeError) as error:
                log.error("%s cannot be read and is left alone: %s", path, error)

    def _path(self, key: Key) -> Path:
        return self._folder / f"{key.job}.{key.fence}.json"


def from_attempt_file(letter: Letter) -> Entry | None:
    """The entry of an attempt that only its spool knows: its supervisor lives or lived, but the ledger was lost."""
    try:
        # The job could have put anything there.
        text = safe_files.read(Path(letter.spool_dir) / ATTEMPT_FILE, _ATTEMPT_BYTES, _OF_THE_JOB)
        data: dict[str, Any] = json.loads(text or b"")
        return Entry(
            job=letter.job,
            fence=letter.fence,
            node=letter.node,
            spool_dir=letter.spool_dir,
            socket=str(data["socket"]),
            grace_seconds=letter.grace_seconds,
            pid=int(data["pid"]),
            starttime=int(data["starttime"]),
            life="",
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None


def write_whole(path: Path, data: dict[str, Any], *, durable: bool = True) -> None:
    """Replace a file in one go: a reader sees the old text or the new, also after a power cut if ``durable``."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, json.dumps(data).encode())
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)
    draft.replace(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut, where the file system can."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
