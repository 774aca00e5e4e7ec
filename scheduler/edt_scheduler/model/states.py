"""The states that the database stores, each in one place: of jobs, of nodes, of users, and the causes of resizes.

Pure: no clock, no database. ``TRANSITIONS`` is the only list of legal moves of a job in the code; the schema holds the
same list in ``job_transitions`` and a trigger, and a test compares the two. ``store.jobs.move`` is the one function
through which a job's state changes. How engines and attempts end is ``edt_contract``'s ``ExitKind``; why a job waits is
``plan``'s ``Blocking``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from edt_scheduler.errors import IllegalTransition


class JobState(enum.StrEnum):
    """The state of a job: six, all of them shown to users. ``wire`` is WMLA's word for each."""

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
"""Which state may follow which. PENDING to FINISHED or ERROR: an attempt that ended before it reported its start."""


class JobStatus(enum.StrEnum):
    """What people are shown of a job's state: where one state means two things, which of them it is."""

    SUBMITTED = "submitted"
    WAITING = "waiting"  # PENDING: for slots, or for a back-off
    STARTING = "starting"  # PENDING: it holds slots, and its attempt has yet to report its start
    RUNNING = "running"
    STOPPING = "stopping"  # its stop was asked for, and processes of it are left
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


_STATUSES = {
    JobState.SUBMITTED: JobStatus.SUBMITTED,
    JobState.RUNNING: JobStatus.RUNNING,
    JobState.FINISHED: JobStatus.FINISHED,
    JobState.KILLED: JobStatus.STOPPED,
    JobState.ERROR: JobStatus.FAILED,
}


def job_status(state: JobState, *, slots: int, waits: bool, stop_requested: bool) -> JobStatus:
    """The status of a job in ``state`` that holds ``slots`` slots; ``waits``: it is known why nothing of it starts."""
    if stop_requested and not state.terminal:
        return JobStatus.STOPPING
    if state is JobState.PENDING:
        return JobStatus.STARTING if slots and not waits else JobStatus.WAITING
    return _STATUSES[state]


ACTIVE = tuple(state for state in JobState if TRANSITIONS[state])
TERMINAL = tuple(state for state in JobState if not TRANSITIONS[state])


def advance(before: JobState, after: JobState) -> JobState:
    """``after``, if a job may go there from ``before``; raises IllegalTransition otherwise."""
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(before, after)
    return after


class Intent(enum.StrEnum):
    """What the administrator wants of a node."""

    OPEN = "open"  # take work
    CORDONED = "cordoned"  # nothing new; what runs there stays
    DRAINING = "draining"  # nothing new, and what runs there leaves


class Health(enum.StrEnum):
    """What the planner may do with a node."""

    UP = "up"  # new engines may start there
    CORDONED = "cordoned"  # engines stay, none start
    DRAINING = "draining"  # engines leave, none start
    LOST = "lost"  # not heard from within its lease: its engines are gone for planning


def health(intent: Intent, *, lost: bool) -> Health:
    """A lost node is lost, whatever is wanted of it."""
    if lost:
        return Health.LOST
    return Health.UP if intent is Intent.OPEN else Health(intent.value)


class Role(enum.StrEnum):
    """What a user may do."""

    ADMIN = "admin"  # sees every job, runs nodes and users
    USER = "user"  # sees and stops their own jobs


class ResizeCause(enum.StrEnum):
    """Why the scheduler changed a job's size. ``ResizeView.detail`` says it with names."""

    SUBMIT = "submit"  # its first attempt starts
    RESTART = "restart"  # a later attempt starts
    ENGINES_KNOWN = "E-known"  # its script has told E, it may hold more than one slot
    JOB_ENDED = "job-finished"  # slots of an ended job came free
    SLOTS_FREE = "slots-free"  # slots came free otherwise: a node, another job's shrinking, a back-off's end
    ROOM = "room"  # another job's share
    STOP = "stop"  # its user's word
    DRAIN = "drain"  # its node is being emptied
    NODE_LOST = "node-lost"  # a node was not heard from for its lease
    LEFT = "left"  # engines left in order, and not on the scheduler's word: their node's agent ends, or a SIGTERM
    ENGINE_LOST = "engine-lost"  # engines ended unasked and the attempt went on: a crash, a kill, a supervisor's death
