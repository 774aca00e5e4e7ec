"""The states that the database stores, each defined once: of jobs, nodes and users, scopes, and the causes of resizes.

Pure: no clock, no database. ``TRANSITIONS`` is the only list in the code of the legal changes of a job's state. The
schema holds the same list in ``job_transitions`` and enforces it with a trigger; a test compares the two. Only
``store.jobs.move`` changes a job's state. How engines and attempts end is defined by ``ExitKind`` of ``edt_contract``.
Why a job waits is defined by ``Blocking`` of ``plan``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from edt_scheduler.errors import IllegalTransition


class JobState(enum.StrEnum):
    """The state of a job. There are six, and users see all of them. ``wire`` is WMLA's word for each."""

    SUBMITTED = "SUBMITTED"  # durable; no scheduler has seen it yet
    PENDING = "PENDING"  # waits for slots, for a back-off, or for its attempt to report its start
    RUNNING = "RUNNING"  # an attempt has started
    FINISHED = "FINISHED"  # the script ended without an error; terminal
    KILLED = "KILLED"  # it was asked to stop, and no process of it is left; terminal
    ERROR = "ERROR"  # the script failed; terminal

    @property
    def terminal(self) -> bool:
        """Whether this state is final: a job in it never changes its state again."""
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
"""Which states may follow each state. PENDING is followed by FINISHED or ERROR if an attempt ended before it reported
its start.
"""


class JobStatus(enum.StrEnum):
    """How a job's state is shown to people. If one state has two meanings, the status says which one applies."""

    SUBMITTED = "submitted"
    WAITING = "waiting"  # PENDING: it waits for slots, or for a back-off
    STARTING = "starting"  # PENDING: it holds slots, and its attempt has not reported its start
    RUNNING = "running"
    PAUSING = "pausing"  # its user has paused it, and processes of it are left
    PAUSED = "paused"  # its user has paused it, and no process of it is left, except on nodes that are lost
    STOPPING = "stopping"  # it was asked to stop, and processes of it are left
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


def job_status(
    state: JobState, *, slots: int, waits: bool, stop_requested: bool, paused: bool = False, pausing: bool = False
) -> JobStatus:
    """The status of a job in ``state`` that holds ``slots`` slots. ``waits``: whether a reason is known why it must
    wait. ``paused``: whether its user has paused it. ``pausing``: whether processes of it may be left nevertheless.
    """
    if stop_requested and not state.terminal:
        return JobStatus.STOPPING
    if paused and not state.terminal:
        return JobStatus.PAUSING if pausing else JobStatus.PAUSED
    if state is JobState.PENDING:
        return JobStatus.STARTING if slots and not waits else JobStatus.WAITING
    return _STATUSES[state]


ACTIVE = tuple(state for state in JobState if TRANSITIONS[state])
TERMINAL = tuple(state for state in JobState if not TRANSITIONS[state])


def advance(before: JobState, after: JobState) -> JobState:
    """``after``, if a job may change to it from ``before``.

    Raises:
        IllegalTransition: The change is not legal.
    """
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
    LOST = "lost"  # not heard from within its lease: the planner counts its engines as gone


def health(intent: Intent, *, lost: bool) -> Health:
    """The health of a node. A lost node is lost, whatever the administrator wants of it."""
    if lost:
        return Health.LOST
    return Health.UP if intent is Intent.OPEN else Health(intent.value)


class Role(enum.StrEnum):
    """What a user may do."""

    ADMIN = "admin"  # sees every job, runs nodes and users
    USER = "user"  # submits jobs, sees and stops their own
    VIEWER = "viewer"  # sees every job, changes nothing


class Scope(enum.StrEnum):
    """What a credential allows at most. Each includes those before it. The role of its user limits it further."""

    READ = "read"  # whatever changes nothing
    SUBMIT = "submit"  # to submit jobs, and to stop and delete the user's own
    ADMIN = "admin"  # all that the user's role allows


SCOPES_OF_ROLE: Mapping[Role, tuple[Scope, ...]] = {
    Role.VIEWER: (Scope.READ,),
    Role.USER: (Scope.READ, Scope.SUBMIT),
    Role.ADMIN: (Scope.READ, Scope.SUBMIT, Scope.ADMIN),
}
"""The scopes that a user of each role can use, the smallest first."""


class ResizeCause(enum.StrEnum):
    """Why the scheduler changed a job's size. ``ResizeView.detail`` gives the cause with names."""

    SUBMIT = "submit"  # its first attempt starts
    RESTART = "restart"  # a later attempt starts
    ENGINES_KNOWN = "E-known"  # its script has set E, so it may hold more than one slot
    JOB_ENDED = "job-finished"  # slots of an ended job became free
    SLOTS_FREE = "slots-free"  # slots became free otherwise: a new node, a job that shrank, a back-off that ended
    ROOM = "room"  # another job gets its share
    RECLAIM = "reclaim"  # another user or queue is entitled to its slots
    PRIORITY = "priority"  # a job of a higher priority gets its slots
    BOUNDS = "bounds"  # its user has changed its least or most workers
    WORTH = "worth"  # its speed was measured, or that of others, and another size is worth more now
    COMPACT = "compact"  # it moves onto fewer nodes, or makes room for a job that then needs fewer
    STOP = "stop"  # a user asked for it
    PAUSE = "pause"  # a user paused it
    EXTEND = "extend"  # a user gave it another number of epochs, with which its next attempt goes on
    DRAIN = "drain"  # its node is being emptied
    NODE_LOST = "node-lost"  # a node was silent for longer than its lease
    LEFT = "left"  # engines left in order, but the scheduler did not ask: their node's agent ends, or a SIGTERM
    ENGINE_LOST = "engine-lost"  # engines crashed or were killed, or their supervisor was; the attempt continued
