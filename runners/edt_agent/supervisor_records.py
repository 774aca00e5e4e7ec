"""The agent's records: for each supervisor that it has started, a file from which the next agent can find it.

The records lie in ``<state_dir>/attempts``. The agent writes a record before the supervisor gets its spec, and removes
it when the API has the attempt's last report. So no agent starts an attempt a second time or forgets an attempt. Specs
hold secrets, so a record contains nothing of a spec's environment.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from edt_agent.processes import ProcessId, alive, environment
from edt_agent.safe_files import OF_THE_JOB, read
from edt_agent.settings import LIFE_VARIABLE
from edt_contract.attempt import ATTEMPT_FILE, AttemptSpec
from edt_contract.durable import write_whole

log = logging.getLogger(__name__)

_ATTEMPT_BYTES = 4096


class Key(NamedTuple):
    """Identifies an attempt on this node."""

    job: str
    fence: int

    @classmethod
    def of(cls, spec: AttemptSpec) -> Key:
        return cls(spec.job, spec.fence)

    def __str__(self) -> str:
        return f"{self.job}/{self.fence}"


@dataclass(frozen=True)
class SupervisorRecord:
    """The record of one supervisor. It exists from before the supervisor gets its spec until the API has its last
    report."""

    job: str
    fence: int
    node: str
    spool_dir: str
    socket: str
    grace_seconds: float
    pid: int = 0
    starttime: int = 0
    life: str = ""
    """Value of EDT_LIFE in the supervisor and all its descendants; "": unknown, because the supervisor was gone when
    the record was made."""
    acked: int = 0
    """Number of the last report that the API has. The number may be too small, but never too large."""
    before: int = 0
    """Number of the last report of an earlier supervisor of this attempt that ended here; 0: there was none."""
    container: str = ""
    """Id of the container whose first process the supervisor is; "": the supervisor is a process of this machine."""
    guarded: bool = False
    """Whether the job's code runs as another user than the supervisor, so that it cannot write reports."""
    gang: bool = False
    """Whether the attempt runs a gang."""

    @classmethod
    def of(cls, spec: AttemptSpec, socket: str, **own: Any) -> SupervisorRecord:
        """The record of a supervisor of this attempt. ``own``: the fields that do not come from the spec."""
        gang = spec.gang is not None
        return cls(spec.job, spec.fence, spec.node, spec.spool_dir, socket, spec.grace_seconds, gang=gang, **own)

    @property
    def key(self) -> Key:
        return Key(self.job, self.fence)

    @property
    def name(self) -> str:
        """The supervisor's name for people: its pid, or its container."""
        return f"container {self.container[:12]}" if self.container else str(self.pid)

    @property
    def process(self) -> ProcessId:
        return ProcessId(self.pid, self.starttime)


class SupervisorRecords:
    """All records of one agent. No other process writes into their folder. Iteration reads all records, and removes
    drafts that killed agents have left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, record: SupervisorRecord) -> None:
        """Write a record. It replaces an earlier record with the same key.

        Raises:
            OSError: the disk does not accept it.
        """
        write_whole(self._path(record.key), json.dumps(asdict(record)), mode=0o600, alone=True)

    def remove(self, key: Key) -> None:
        self._path(key).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[SupervisorRecord]:
        for draft in self._folder.glob(".*"):  # drafts of agents that were killed
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
    """A record made from attempt.json in the spool folder, if the agent's own record was lost. None: there is no such
    file, or it cannot be read."""
    try:
        # The job could have written anything there.
        text = read(Path(spec.spool_dir) / ATTEMPT_FILE, _ATTEMPT_BYTES, OF_THE_JOB)
        data: dict[str, Any] = json.loads(text or b"")
        process = ProcessId(int(data["pid"]), int(data["starttime"]))
        # A gang's processes have sessions of their own, so only EDT_LIFE says that they belong to this supervisor.
        life = environment(process.pid).get(LIFE_VARIABLE, "")
        life = life if alive(process) else ""  # looked at last: now the variable is certainly this process's
        return SupervisorRecord.of(spec, str(data["socket"]), pid=process.pid, starttime=process.starttime, life=life)
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
