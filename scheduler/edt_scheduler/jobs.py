"""A job: its states, which of them may follow which, and what an exit does to it. Room: scheduler.

Pure: no clock, no database. ``TRANSITIONS`` is the only list of legal moves in the code; the schema holds the
same list in ``job_transitions`` and a trigger, and a test holds the two against each other.
Next: store/jobs.py, whose ``move`` is the one door through which a state changes.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from edt_runner.contract import ExitKind
from edt_scheduler.errors import IllegalTransition


class JobState(enum.StrEnum):
    """Where a job stands. Six states, all of them shown to users; ``wire`` is WMLA's word for each."""

    SUBMITTED = "SUBMITTED"  # durable; no scheduler has looked at it yet
    PENDING = "PENDING"  # waits for slots, for a back-off, or for its attempt to report its start
    RUNNING = "RUNNING"  # an attempt has started
    FINISHED = "FINISHED"  # the script came to its end; terminal
    KILLED = "KILLED"  # stopped on its user's word, and no process of it is left; terminal
    ERROR = "ERROR"  # the script failed; terminal

    @property
    def terminal(self) -> bool:
        """A terminal state is written once and never left."""
        return not TRANSITIONS[self]

    @property
    def wire(self) -> str:
        """The name that WMLA's clients know."""
        return "PENDING_CRD_SCHEDULER" if self is JobState.PENDING else self.value


TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.SUBMITTED: frozenset({JobState.PENDING, JobState.KILLED}),
    JobState.PENDING: frozenset({JobState.RUNNING, JobState.FINISHED, JobState.KILLED, JobState.ERROR}),
    JobState.RUNNING: frozenset({JobState.PENDING, JobState.FINISHED, JobState.KILLED, JobState.ERROR}),
    JobState.FINISHED: frozenset(),
    JobState.KILLED: frozenset(),
    JobState.ERROR: frozenset(),
}
"""Which state may follow which. PENDING to FINISHED or ERROR: an attempt that ended before it told its start."""

ACTIVE = tuple(state for state in JobState if TRANSITIONS[state])
TERMINAL = tuple(state for state in JobState if not TRANSITIONS[state])


def advance(before: JobState, after: JobState) -> JobState:
    """``after``, if a job may go there from ``before``; raises IllegalTransition otherwise."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(before, after)
    return after


LOST_BACKOFF_SECONDS = (1, 2, 4, 8, 16, 32, 60)
"""What a job waits before its next attempt, by how often in a row it was lost; the last one goes on for ever."""

PULL_FAILED_BACKOFF_SECONDS = 30
"""For so long a job gets no new slot after a newcomer of it could not get the weights."""


def state_after(kind: ExitKind, *, stop_requested: bool) -> JobState:
    """Where a job goes when its attempt has ended as ``kind`` and no process of it is left.

    A stop wins over everything but success: a script that dies of the SIGTERM it was sent has not failed.
    """
    if kind is ExitKind.FINISHED:
        return JobState.FINISHED
    if stop_requested or kind is ExitKind.STOPPED:
        return JobState.KILLED
    if kind is ExitKind.SCRIPT_ERROR:
        return JobState.ERROR
    return JobState.PENDING


def backoff_seconds(kind: ExitKind, losses: int) -> int:
    """How long the next attempt waits. ``losses``: attempts lost in a row, this one included."""
    if kind is not ExitKind.LOST or losses < 1:
        return 0
    return LOST_BACKOFF_SECONDS[min(losses, len(LOST_BACKOFF_SECONDS)) - 1]


_EXEC_ID = re.compile(r"edt-([1-9][0-9]{0,17})")


def exec_id(number: int) -> str:
    """``edt-7`` for job row 7."""
    return f"edt-{number}"


def job_number(text: str) -> int | None:
    """7 for ``edt-7``; None for what is not an exec id of ours."""
    match = _EXEC_ID.fullmatch(text)
    return int(match.group(1)) if match else None


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
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    """``--msd-env``. May hold secrets: stored in the job's row, never in events, messages or logs."""
    data_path: str | None = None
    """``--cs-datastore-meta …,data_path=REL``: DATA_DIR below the data file system."""

    @property
    def max_engines(self) -> int:
        """The most slots this job may hold, whatever its script asks for."""
        return self.num_worker * self.worker_device_num
