"""A job: what a user submits, what an exit does to its state, how long it waits, how lists of jobs are filtered.

Pure: no clock, no database.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from edt_contract.reports import ExitKind
from edt_scheduler.model.states import JobState

MOST_SLOTS = 10_000
"""A job may ask for so many slots at the most. The scheduler's work grows with it."""


SUBMITTED_CODE = "_submitted_code"
"""Folder of a job in which lies what was sent."""


BACKOFF_SECONDS = (1, 2, 4, 8, 16, 32, 60)
"""What a job waits before it gets something again that it lost, by how often in a row; the last goes on for ever."""

LOSSES_APART_SECONDS = 300
"""Losses farther apart than this are not of one row: the wait after the later one is the first again."""
LOSSES_TOGETHER_SECONDS = 1
"""Losses closer than this are one: a supervisor takes all engines of its node along."""

CAP_SECONDS, LONGEST_CAP_SECONDS = 60, 1800
"""After a joining engine could not get the weights its job keeps its size for so long; doubling up to the second."""

OOM_LIMIT = 2
"""The so-many-th kill for memory counts as the script's."""
OUT_OF_MEMORY = (
    "out of memory: an engine was killed for it for the second time; ask for less (a smaller batch_size, fewer "
    "loader processes), or for nodes with more memory"
)


def state_after(kind: ExitKind, *, stop_requested: bool, again: bool = False) -> JobState:
    """Where a job goes when its attempt has ended as ``kind`` and no process of it is left.

    A stop wins over everything but success: a script that dies of the SIGTERM it was sent has not failed.
    ``again``: an exception of its script may be followed by another attempt.
    """
    if kind is ExitKind.FINISHED:
        return JobState.FINISHED
    if stop_requested or kind is ExitKind.STOPPED:
        return JobState.KILLED
    if kind is ExitKind.SCRIPT_ERROR and not again:
        return JobState.ERROR
    return JobState.PENDING


def backoff_seconds(kind: ExitKind, times: int) -> int:
    """How long what was lost is waited for. ``times``: how often that has happened in a row, this one included."""
    if kind not in {ExitKind.LOST, ExitKind.SCRIPT_ERROR} or times < 1:
        return 0
    return BACKOFF_SECONDS[min(times, len(BACKOFF_SECONDS)) - 1]


def losses_in_a_row(times: Iterable[float]) -> int:
    """How many losses the newest one is the last of. ``times``: when each happened."""
    newest_first = sorted(times, reverse=True)
    number = min(1, len(newest_first))
    for later, earlier in pairwise(newest_first):
        if later - earlier > LOSSES_APART_SECONDS:
            break
        number += later - earlier >= LOSSES_TOGETHER_SECONDS
    return number


def cap_seconds(failures: int) -> int:
    """How long a job's size is capped after so many pull failures in a row."""
    return min(CAP_SECONDS << min(failures - 1, 16), LONGEST_CAP_SECONDS)


@dataclass(frozen=True)
class Raised:
    """What a script died of. Alike: the same words, addresses in memory apart, at the same step."""

    message: str
    step: int | None

    def alike(self, other: Raised) -> bool:
        return self.step == other.step and _bare(self.message) == _bare(other.message)


def why_not_again(raised: Raised, before: Raised | None, restarts: int, most: int) -> str | None:
    """Why a script that raised is not started again; None: it is. ``before``: what its attempt before died of."""
    if most == 0:
        return ""
    if before is not None and raised.alike(before):
        where = "before its first step" if raised.step is None else f"at step {raised.step}"
        return f"the same exception {where} as the time before, so it was not started again"
    if restarts >= most:
        return f"it was started again {restarts} times, as often as --maxRestarts allows"
    return None


def _bare(message: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]+", "0x", message)


MOST_NAMED = 3
"""So many jobs a sentence names."""
_EXEC_ID = re.compile(r"edt-([1-9][0-9]{0,17})")


def exec_id(number: int) -> str:
    """``edt-7`` for job row 7."""
    return f"edt-{number}"


def job_number(text: str) -> int | None:
    """7 for ``edt-7``; None for what is not an exec id of ours."""
    match = _EXEC_ID.fullmatch(text)
    return int(match.group(1)) if match else None


def named(numbers: Iterable[int]) -> str:
    """``edt-1, edt-2, edt-3 and 4 more``."""
    names = [exec_id(number) for number in sorted(numbers)]
    more = len(names) - MOST_NAMED
    return f"{', '.join(names[:MOST_NAMED])} and {more} more" if more > 0 else ", ".join(names)


@dataclass(frozen=True)
class JobSpec:
    """What a user submitted, understood. Immutable: one row of a job, written once."""

    framework: str
    """WMLA's name as submitted, ``edtPyTorch``."""
    model_main: str
    """The main script, relative to the job's working directory."""
    args_verbatim: str
    """The args as they came, values of ``--msd-env`` masked: this text is shown."""
    app_name: str
    backend: str = "pytorch"
    """What the supervisor imports: ``pytorch`` or ``tensorflow``."""
    model_dir: str | None = None
    """``--model-dir``: the working directory inside the submitted code, where it exists there."""
    arguments: tuple[str, ...] = ()
    """The user's own, after the script in ``sys.argv``."""
    num_worker: int = 1
    worker_device_num: int = 1
    max_restarts: int = 0
    """``--maxRestarts``: how often it starts again after an exception of its script."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """``--msd-env``. May hold secrets: stored sealed, in a row of its own (``store.environs``) that goes when nothing
    of the job can start any more; never in events, messages or logs."""
    data_path: str | None = None
    """``--cs-datastore-meta …,data_path=REL``: DATA_DIR below the data file system."""
    image: str | None = None
    """``--msd-image-name``: what its containers are made of, where a node runs jobs in containers."""
    remark: str = ""
    """What its user should be told of the submission; stands in the job's history."""

    @property
    def max_engines(self) -> int:
        """The most slots this job may hold, whatever its script asks for."""
        return self.num_worker * self.worker_device_num


class JobKey(enum.StrEnum):
    """What a list of jobs can be sorted by."""

    NUMBER = "number"
    CREATED_AT = "created_at"
    STATE = "state"
    APP_NAME = "app_name"
    OWNER = "owner"


@dataclass(frozen=True)
class JobOrder:
    """How a list of jobs is sorted. Of those that are alike the older comes first, whichever way it goes."""

    by: JobKey = JobKey.NUMBER
    descending: bool = False


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a list is to show; None: whatever it is."""

    owner: str | None = None
    """The name of its owner: everybody who has had that name, users who were removed too."""
    owner_id: int | None = None
    states: frozenset[JobState] | None = None
    framework: str | None = None
    text: str | None = None
    """Part of its id, its name, its main script, the folder that was sent or its owner's name, capital or small."""
    unnamed: frozenset[str] = frozenset()
    """What jobs are called whose user gave them no name: ``text`` is not looked for in these."""


def folder_sent(work_dir: str) -> str:
    """Name of the folder that was sent, by where its main script is run; empty: files came without one."""
    inside = PurePosixPath(work_dir).parts[1:]
    return inside[-1] if inside else ""


LARGEST = 2**63 - 1


def storable(value: Any) -> Any:
    """JSON data with what cannot be stored replaced: odd characters by U+FFFD, odd numbers by None.

    PostgreSQL takes no NUL in text and no NaN in JSON, neither takes a number of more than 64 bits or half of a
    surrogate pair.
    """
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if -LARGEST <= value <= LARGEST else None
    if isinstance(value, dict):
        return {storable(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return storable(str(value))
