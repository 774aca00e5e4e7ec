"""A job: what a user submits, its state after an exit, its waits after losses, and the filter and order of lists of
jobs.

Pure: no clock, no database.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from edt_contract.gang import GangCommand
from edt_contract.reports import ExitKind
from edt_scheduler.model.states import JobState

MOST_SLOTS = 10_000
"""The most slots that a job may ask for. The scheduler's work grows with this number."""


SUBMITTED_CODE = "_submitted_code"
"""Name of the folder in a job's folder that holds the submitted code."""
BEGIN = "begin"
"""Name of the folder in a job's folder that holds the copy of the checkpoint from which the job begins."""


BACKOFF_SECONDS = (1, 2, 4, 8, 16, 32, 60)
"""How long a job waits before it gets back what it lost, by the number of losses in a row.

The last value holds for all further losses.
"""

LOSSES_APART_SECONDS = 300
"""Losses that are farther apart than this are not in a row: the wait after the later loss is the first value again."""
LOSSES_TOGETHER_SECONDS = 1
"""Losses that are closer than this count as one loss: a lost supervisor takes all engines of its node with it."""

CAP_SECONDS, LONGEST_CAP_SECONDS = 60, 1800
"""How long a job keeps its size after a joining engine could not get the weights.

Each further failure doubles the time, up to LONGEST_CAP_SECONDS.
"""

OOM_LIMIT = 2
"""The kill for memory with this number counts as the script's own error."""
OUT_OF_MEMORY = (
    "out of memory: an engine was killed for it for the second time; ask for less (a smaller batch_size, fewer "
    "loader processes), or for nodes with more memory"
)


def state_after(kind: ExitKind, *, stop_requested: bool, again: bool = False) -> JobState:
    """The state of a job after its attempt has ended as ``kind`` and no process of it is left.

    A requested stop wins over every outcome except success: a script that dies of the SIGTERM it was sent has not
    failed.

    Args:
        kind: How the attempt ended.
        stop_requested: Whether the job was asked to stop.
        again: Whether another attempt may follow an exception of the script.
    """
    if kind is ExitKind.FINISHED:
        return JobState.FINISHED
    if stop_requested or kind is ExitKind.STOPPED:
        return JobState.KILLED
    if kind is ExitKind.SCRIPT_ERROR and not again:
        return JobState.ERROR
    return JobState.PENDING


def backoff_seconds(kind: ExitKind, times: int) -> int:
    """How many seconds the job waits before it gets back what it lost; 0: no wait.

    ``times``: how many times in a row this has happened, including this time.
    """
    if kind not in {ExitKind.LOST, ExitKind.SCRIPT_ERROR} or times < 1:
        return 0
    return BACKOFF_SECONDS[min(times, len(BACKOFF_SECONDS)) - 1]


def losses_in_a_row(times: Iterable[float]) -> int:
    """How many losses in a row end with the newest one. ``times``: when each loss happened, in seconds."""
    newest_first = sorted(times, reverse=True)
    number = min(1, len(newest_first))
    for later, earlier in pairwise(newest_first):
        if later - earlier > LOSSES_APART_SECONDS:
            break
        number += later - earlier >= LOSSES_TOGETHER_SECONDS
    return number


def cap_seconds(failures: int) -> int:
    """How many seconds a job's size is capped after this many pull failures in a row."""
    return min(CAP_SECONDS << min(failures - 1, 16), LONGEST_CAP_SECONDS)


@dataclass(frozen=True)
class Raised:
    """The exception that ended a script, and the step at which it was raised; None: before the first step.

    Two of them are alike if the steps are equal and the messages differ only in memory addresses.
    """

    message: str
    step: int | None

    def alike(self, other: Raised) -> bool:
        """Whether both are the same exception at the same step."""
        return self.step == other.step and _bare(self.message) == _bare(other.message)


def why_not_again(raised: Raised, before: Raised | None, restarts: int, most: int) -> str | None:
    """Why a script that raised an exception is not started again; None: it is started again.

    ``before`` is the exception of the previous attempt; None: there was none, or the job is a gang, of which no step is
    known, so that only the number of restarts decides. The text is empty if the job allows no restarts.
    """
    if most == 0:
        return ""
    if before is not None and raised.alike(before):
        where = "before its first step" if raised.step is None else f"at step {raised.step}"
        return f"the same exception {where} as the time before, so it was not started again"
    if restarts >= most:
        times = "once" if restarts == 1 else f"{restarts} times"
        return f"it was started again {times}, as often as --maxRestarts allows"
    return None


def _bare(message: str) -> str:
    return re.sub(r"0x[0-9a-fA-F]+", "0x", message)


MOST_NAMED = 3
"""About so many jobs or nodes are named by one sentence."""
_EXEC_ID = re.compile(r"edt-([1-9][0-9]{0,17})")


def exec_id(number: int) -> str:
    """The exec id of a job's number: ``edt-7`` for 7."""
    return f"edt-{number}"


def paused_by(name: str) -> str:
    """What is said of a paused job. ``name``: of the user who paused it."""
    return f"paused by {name}"


def job_number(text: str) -> int | None:
    """The number in an exec id: 7 for ``edt-7``; None: the text is no exec id."""
    match = _EXEC_ID.fullmatch(text)
    return int(match.group(1)) if match else None


def named(numbers: Iterable[int]) -> str:
    """A text that names these jobs: ``edt-1, edt-2, edt-3 and 4 more``."""
    names = [exec_id(number) for number in sorted(numbers)]
    more = len(names) - MOST_NAMED
    return f"{', '.join(names[:MOST_NAMED])} and {more} more" if more > 0 else ", ".join(names)


def listed(names: Sequence[str]) -> str:
    """A text that lists these names: ``n1, n2 and n3``. Of many names it has the first ones, and how many follow."""
    if len(names) < 2:
        return "".join(names)
    if len(names) > MOST_NAMED + 1:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"


class DefaultLog(enum.StrEnum):
    """What a client gets who asks for a job's log and does not say which."""

    STEPS = "steps"  # a line for each step, which the platform writes
    OUTPUT = "output"  # what the first process of the script printed


@dataclass(frozen=True)
class JobSpec:
    """What a user submitted, parsed. Immutable: it is written into the job's row once."""

    framework: str
    """WMLA's name of the framework, as submitted, such as ``edtPyTorch``."""
    model_main: str
    """The main script, relative to the job's working directory."""
    args_verbatim: str
    """The arguments as submitted. Values of ``--msd-env`` are masked, because this text is shown."""
    app_name: str
    backend: str = "pytorch"
    """The framework that the supervisor imports: ``pytorch`` or ``tensorflow``."""
    model_dir: str | None = None
    """``--model-dir``: the working directory in the submitted code, if it exists there."""
    arguments: tuple[str, ...] = ()
    """The user's own arguments, which follow the script in ``sys.argv``."""
    num_worker: int = 1
    worker_device_num: int = 1
    device: str | None = None
    """``--workerDeviceType``: ``gpu`` or ``cpu``, the only kind of slot that the job gets; None: either kind."""
    gpu_models: tuple[str, ...] = ()
    """The only models of GPUs that the job gets, in lower case; empty: any."""
    min_slots: int = 1
    """The fewest slots with which the job trains: it has so many, or none. Of a gang it does not count."""
    sizes: tuple[int, ...] = ()
    """The only numbers of slots that the job may have, smallest first; empty: those that suit its steps."""
    queue: str = ""
    """Path of its queue, such as ``/research/vision``; empty: the root. If there is no such queue, the job belongs to
    the nearest one above it."""
    priority: int = 1
    """Its priority class, from 1. Jobs of a higher class come first."""
    after: tuple[str, ...] = ()
    """Exec ids of the jobs that must have finished before this one starts."""
    deadline: float | None = None
    """When its user wants it to be done, in seconds since the epoch; None: no matter when."""
    time_limit: float | None = None
    """Seconds that its attempts may run in all; None: no limit."""
    max_restarts: int = 0
    """``--maxRestarts``: how often the job is started again after an exception of its script."""
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """``--msd-env``. May hold secrets, so it never appears in events, messages or logs.

    It is stored sealed in a row of its own (``store.environs``). The row is deleted when the job can no longer start.
    """
    data_path: str | None = None
    """``--cs-datastore-meta …,data_path=REL``: DATA_DIR below the data file system."""
    image: str | None = None
    """``--msd-image-name``: the image of the job's containers, on nodes that run jobs in containers."""
    options: tuple[tuple[str, str], ...] = ()
    """The platform's options as given: name and value, in order. Secret values are masked, because these are shown."""
    pending_timeout: int | None = None
    """``--msd-pending-timeout``: seconds after which the job ends if it has never started."""
    remark: str | None = None
    """A remark on the submission for its user. It is also the first event of the job's history."""
    gang: GangCommand | None = None
    """What the processes of a gang run; None: the job is elastic."""
    default_log: DefaultLog = DefaultLog.STEPS
    model_folder: bool = True
    """Whether the job finds a folder ``model`` in its result folder. Some scripts for WMLA make the folder themselves
    and fail if it is there."""
    resume_from: str | None = None
    """``--resume-from``: exec id of the job from whose newest checkpoint this one begins; None: it begins anew."""
    wanted_epochs: int | None = None
    """The epochs that its training has in all, whatever its script says; None: those of the script."""

    @property
    def max_engines(self) -> int:
        """The most slots that this job may hold, whatever its script asks for."""
        return self.num_worker * self.worker_device_num


@dataclass(frozen=True)
class Begin:
    """The checkpoint of another job from which a new job begins."""

    number: int
    """Number of the other job."""
    step: int | None
    """The step at which the checkpoint was written; None: it is not known."""
    seed: int
    """The other job's seed and threads. The new job has the same, since the bits of its steps depend on them."""
    threads: int

    def __str__(self) -> str:
        at = f" at step {self.step}" if self.step is not None else ""
        return f"checkpoint of {exec_id(self.number)}{at}"


class JobKey(enum.StrEnum):
    """The columns by which a list of jobs can be sorted."""

    NUMBER = "number"
    CREATED_AT = "created_at"
    STARTED_AT = "started_at"
    FINISHED_AT = "finished_at"
    STATE = "state"
    APP_NAME = "app_name"
    OWNER = "owner"


@dataclass(frozen=True)
class JobOrder:
    """How a list of jobs is sorted. Among jobs with equal values the older job comes first, in both directions.

    A job that has not started or not ended counts as one that did so before all others.
    """

    by: JobKey = JobKey.NUMBER
    descending: bool = False


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a list shows. A field that is None excludes no job."""

    owner: str | None = None
    """The owner's name. It matches the jobs of all users who have ever had this name, including removed users."""
    owner_id: int | None = None
    states: frozenset[JobState] | None = None
    framework: str | None = None
    app_name: str | None = None
    """The name that WMLA's clients get, whole."""
    text: str | None = None
    """A part of the job's id, name, main script, submitted folder or owner's name. Upper and lower case are equal."""
    number: int | None = None
    unnamed: frozenset[str] = frozenset()
    """The names of jobs to which the user gave no name. ``text`` is not searched in these names."""


def folder_sent(work_dir: str) -> str:
    """Name of the submitted folder, taken from the job's working directory; empty: the files came without a folder."""
    inside = PurePosixPath(work_dir).parts[1:]
    return inside[-1] if inside else ""


LARGEST = 2**63 - 1


def storable(value: Any) -> Any:
    """JSON data in which values that cannot be stored are replaced: characters by U+FFFD, numbers by None.

    PostgreSQL accepts no NUL in text and no NaN in JSON. Neither database accepts an integer of more than 64 bits or
    half of a surrogate pair.
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
