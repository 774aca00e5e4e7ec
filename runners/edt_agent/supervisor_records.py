"""One record for each supervisor that the agent has started, on disk, so that the next agent finds it.

They lie in ``<state_dir>/attempts``. A record is on disk before a supervisor gets its spec and is removed when the
API has the attempt's last report; so no agent can start an attempt a second time or forget one. Attempt
specs hold secrets, so nothing of a spec's environment is in a record.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from edt_agent.processes import ProcessId
from edt_agent.safe_files import OF_THE_JOB, read
from edt_contract.attempt import ATTEMPT_FILE, AttemptSpec
from edt_contract.durable import write_whole

log = logging.getLogger(__name__)

_ATTEMPT_BYTES = 4096


class Key(NamedTuple):
    """Names an attempt on this node."""

    job: str
    fence: int

    @classmethod
    def of(cls, spec: AttemptSpec) -> Key:
        return cls(spec.job, spec.fence)

    def __str__(self) -> str:
        return f"{self.job}/{self.fence}"


@dataclass(frozen=True)
class SupervisorRecord:
    """One supervisor, from before it gets its spec until the API has its last report."""

    job: str
    fence: int
    node: str
    spool_dir: str
    socket: str
    grace_seconds: float
    pid: int = 0
    starttime: int = 0
    life: str = ""
    """Value of EDT_LIFE in the supervisor and all its descendants; "": it is no longer known."""
    acked: int = 0
    """Number of the last report that the API has. It may be too small, but never too large."""
    before: int = 0
    """Number of the last report of an earlier supervisor of this attempt that ended here. 0: it is the first."""
    container: str = ""
    """Id of the container whose first process the supervisor is; "": it is a process of this machine."""
    guarded: bool = False
    """The job's code runs as another user than the supervisor, so it cannot write reports."""

    @classmethod
    def of(cls, spec: AttemptSpec, socket: str, **own: Any) -> SupervisorRecord:
        """The record of a supervisor of this attempt; ``own``: its other fields."""
        return cls(spec.job, spec.fence, spec.node, spec.spool_dir, socket, spec.grace_seconds, **own)

    @property
    def key(self) -> Key:
        return Key(self.job, self.fence)

    @property
    def name(self) -> str:
        """How a person finds it on this machine: a pid, or a container."""
        return f"container {self.container[:12]}" if self.container else str(self.pid)

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.starttime)


class SupervisorRecords:
    """All records of one agent. No other process writes into their folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, record: SupervisorRecord) -> None:
        """Write a record in place of the one with its key.

        Raises:
            OSError: the disk does not accept it.
        """
        write_whole(self._path(record.key), json.dumps(asdict(record)), mode=0o600, alone=True)

    def remove(self, key: Key) -> None:
        self._path(key).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[SupervisorRecord]:
        for draft in self._folder.glob(".*"):  # of agents that were killed
            with contextlib.suppress(OSError):
                draft.unlink()
        for path in sorted(self._folder.glob("*.json")):
            try:
                yield SupervisorRecord(**json.loads(path.read_text()))
            except (OSError, ValueError, TypeError) as error:
                log.error("%s cannot be read and is left alone: %s", path, error)

    def _path(self, key: Key) -> Path:
        return self._folder / f"{key.job}.{key.fence}.json"


def from_attempt_file(spec: AttemptSpec) -> SupervisorRecord | None:
    """The record of an attempt that only its spool knows, because the agent's records were lost."""
    try:
        # The job could have written anything there.
        text = read(Path(spec.spool_dir) / ATTEMPT_FILE, _ATTEMPT_BYTES, OF_THE_JOB)
        data: dict[str, Any] = json.loads(text or b"")
        process = {"pid": int(data["pid"]), "starttime": int(data["starttime"])}
        return SupervisorRecord.of(spec, str(data["socket"]), **process)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
