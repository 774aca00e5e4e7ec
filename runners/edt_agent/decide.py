"""What the agent does next, given what the API wants and what runs. Pure: no clock, no I/O, no memory.

The agent calls ``decide`` after each event and by timer. Each action may be done late, twice or not at all: the next
call decides from what is then the case.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from edt_agent.supervisor_records import Key
from edt_contract.attempt import Assignment, DesiredState
from edt_contract.durable import CANNOT_WRITE
from edt_contract.reports import ExitKind

LEAVE_LIMIT_SECONDS = 660.0
"""A supervisor ends engines that have not left after three steps, at most 600 s; a minute later the agent does."""
STOP_SLACK_SECONDS = 5.0
"""A supervisor gives a stop its grace; so much later the agent kills."""
EXIT_SLACK_SECONDS = 10.0
"""So long may a supervisor need to exit after its last report."""
START_SECONDS = 300.0
"""So long may a supervisor import its framework, over a slow network even, before it takes its spec."""
START_LIMIT = 3
"""A supervisor that ends before it takes its spec is started so often, then the attempt is given up."""

BAD_SPEC = 2
"""Exit status of a supervisor that could not read its spec: another start would end the same way."""


class Phase(enum.StrEnum):
    """How far a supervisor is in its life."""

    LIVE = "live"  # it runs
    ENDED = "ended"  # it has written its last report; its process may need a moment to exit
    DEAD = "dead"  # it is gone without a last report


@dataclass(frozen=True)
class AttemptSnapshot:
    """One attempt as the agent sees it at one instant."""

    phase: Phase
    desired: DesiredState | None
    """The newest desired state that this agent has set; None: it has set none yet."""
    since: float
    """Monotonic seconds at which it was asked to leave, asked to stop, or entered its phase, whichever is newest."""
    grace_seconds: float
    lives: bool = True
    """Its supervisor's process runs."""
    empty: bool = False
    """No process of it is left."""
    reported: bool = False
    """The API has all of its reports."""
    written: bool = True
    """All its reports are on disk, also those that this agent made."""
    last_seq: int = 0
    """Number of its last report."""
    began: bool = True
    """It reported something, so an engine may have run, and it must never be started again under this fence."""
    code: int | None = None
    """Exit status of its supervisor, or minus the signal that ended it; None: this agent could not see it."""
    oom: bool = False
    """The kernel killed its supervisor because memory ran out."""
    last_output: str = ""
    """The last that its supervisor printed before it had a log."""
    behind: bool = False
    """There is more in its spool than has been read."""


@dataclass(frozen=True)
class Start:
    """Start a supervisor for this attempt, in place of an earlier one that has ended."""

    key: Key
    assignment: Assignment


@dataclass(frozen=True)
class SendDesired:
    """Send its supervisor this desired state."""

    key: Key
    desired: DesiredState


@dataclass(frozen=True)
class Kill:
    """SIGKILL to every process of it."""

    key: Key
    why: str


@dataclass(frozen=True)
class Close:
    """Write its last reports, since its supervisor cannot. ``assignment``: of an attempt that never ran here."""

    key: Key
    kind: ExitKind
    message: str
    assignment: Assignment | None = None


@dataclass(frozen=True)
class Retry:
    """Drop a supervisor that ended before it took its spec; it is started again later."""

    key: Key
    why: str


@dataclass(frozen=True)
class Forget:
    """Drop an attempt that is over: the API has all its reports."""

    key: Key


Action = Start | SendDesired | Kill | Close | Retry | Forget


@dataclass(frozen=True)
class Assigned:
    """What the API wants of this node."""

    assignments: Mapping[Key, Assignment]
    unreadable: AbstractSet[Key] = frozenset()
    """Listed, but in a newer platform's format: what runs of these attempts is left as it is."""


@dataclass(frozen=True)
class FailedStarts:
    """The starts of an attempt that have failed."""

    failed: int
    """How many."""
    not_before: float
    """Monotonic seconds before which it is not started again."""
    why: str
    """Why the last one failed, in words for the job's user."""
    hopeless: bool = False
    """Another start would fail the same way, because the job asks for something that does not exist."""


def decide(
    assigned: Assigned | None,
    running: Mapping[Key, AttemptSnapshot],
    starts: Mapping[Key, FailedStarts],
    *,
    leaving: bool,
    now: float,
) -> tuple[Action, ...]:
    """The actions that turn what is into what should be.

    Args:
        assigned: what the API wants of this node; None until it has answered once.
        running: what the agent sees of each attempt that it knows.
        starts: the failed starts of attempts.
        leaving: the whole node leaves (Ctrl-C), so nothing is started and every attempt is asked to leave.
        now: monotonic seconds.
    """
    actions: list[Action] = []
    for key, attempt in running.items():
        actions.extend(_for_known(key, attempt, assigned=assigned, starts=starts, leaving=leaving, now=now))
    if assigned is not None and not leaving:
        for key, assignment in assigned.assignments.items():
            if key not in running or _wanted_again(running[key], assignment):
                actions.extend(_for_missing(key, assignment, starts.get(key), now))
    return tuple(actions)


def _for_missing(key: Key, assignment: Assignment, starts: FailedStarts | None, now: float) -> Iterator[Action]:
    """Actions for an assigned attempt of which nothing runs here, or nothing any more."""
    desired = assignment.desired
    if desired.stop:
        yield Close(key, ExitKind.STOPPED, "stopped before it started on this node", assignment)
    elif not desired.slots:
        yield Close(key, ExitKind.LEFT, "asked to leave before it started on this node", assignment)
    elif starts is None:
        yield Start(key, assignment)
    elif starts.hopeless:
        yield Close(key, ExitKind.SCRIPT_ERROR, starts.why, assignment)
    elif starts.failed >= START_LIMIT:
        text = f"its supervisor could not be started in {starts.failed} attempts: {starts.why}"
        yield Close(key, ExitKind.LOST, text, assignment)
    elif now >= starts.not_before:
        yield Start(key, assignment)


def _wanted_again(attempt: AttemptSnapshot, assignment: Assignment) -> bool:
    """Whether an attempt that has left is wanted here once more: the API knows that it left and lists it all the same.
    The next supervisor counts the lines on disk, so all of this one's must be there."""
    over = attempt.phase is Phase.ENDED and attempt.empty and attempt.reported and attempt.written
    return over and assignment.spec.last_report_seq >= attempt.last_seq


def _for_known(
    key: Key,
    attempt: AttemptSnapshot,
    *,
    assigned: Assigned | None,
    starts: Mapping[Key, FailedStarts],
    leaving: bool,
    now: float,
) -> Iterator[Action]:
    """Actions for an attempt of which something runs here, or ran."""
    listed = assigned is None or key in assigned.assignments or key in assigned.unreadable
    match attempt.phase:
        case Phase.LIVE:
            yield from _for_live(key, attempt, _desired(key, attempt, assigned, leaving), now)
        case Phase.DEAD:
            known = assigned is not None or leaving
            yield from _for_dead(key, attempt, listed if known else None, _may_start_again(key, starts, leaving))
        case Phase.ENDED:
            yield from _for_ended(key, attempt, listed, now)


def _for_live(key: Key, attempt: AttemptSnapshot, desired: DesiredState | None, now: float) -> Iterator[Action]:
    """Its supervisor runs: send it a new desired state, and kill it when it does not leave in time."""
    if desired is not None and desired != attempt.desired:
        yield SendDesired(key, desired)
    elif attempt.desired is not None and now > attempt.since + _limit_seconds(attempt):
        yield Kill(key, "it was asked to leave and did not in time")
    elif not attempt.began and now > attempt.since + START_SECONDS:
        yield Kill(key, "it did not take its spec")


def _for_dead(key: Key, attempt: AttemptSnapshot, listed: bool | None, may_start_again: bool) -> Iterator[Action]:
    """Its supervisor is gone without a last report: first end the processes that it left, then write the report.

    ``listed`` is None until the API has answered once. The report waits for that: where the platform does not know the
    job, the job's folder may have been moved away, and it must not be made anew for a report that nobody needs.
    """
    if not attempt.empty:
        yield Kill(key, "its supervisor is gone")
    elif listed is None:
        return
    elif not listed:
        yield Forget(key)
    elif attempt.began or attempt.code == BAD_SPEC or not may_start_again:
        yield Close(key, *_closing_kind(attempt))
    else:
        yield Retry(key, _how_it_ended(attempt))


def _for_ended(key: Key, attempt: AttemptSnapshot, listed: bool, now: float) -> Iterator[Action]:
    """It has written its last report: no process of it may stay, and the API must have the report."""
    if not attempt.empty:
        if not attempt.lives or now > attempt.since + EXIT_SLACK_SECONDS:
            yield Kill(key, "processes were left behind after its end")
    elif attempt.reported and not listed:
        yield Forget(key)


def _desired(key: Key, attempt: AttemptSnapshot, assigned: Assigned | None, leaving: bool) -> DesiredState | None:
    """The desired state of a live attempt; None: it stays as it is."""
    if assigned is None or key in assigned.unreadable:
        desired = attempt.desired
    elif key in assigned.assignments:
        desired = assigned.assignments[key].desired
    else:
        # The API has closed this fence, so nothing needs the work of what still runs under it.
        return DesiredState(key.fence, (), stop=True)
    if leaving:
        base = desired or DesiredState(key.fence, ())
        asked_back = tuple(dict.fromkeys((*base.leaving, *(slot.allocation for slot in base.slots))))
        return dataclasses.replace(base, slots=(), leaving=asked_back)
    return desired


def _limit_seconds(attempt: AttemptSnapshot) -> float:
    """How many seconds after ``since`` a supervisor that was asked to leave or stop is killed."""
    desired = attempt.desired
    if desired is not None and desired.stop:
        return attempt.grace_seconds + STOP_SLACK_SECONDS
    if desired is not None and not desired.slots:
        return max(LEAVE_LIMIT_SECONDS, attempt.grace_seconds + STOP_SLACK_SECONDS)
    return float("inf")


def _may_start_again(key: Key, starts: Mapping[Key, FailedStarts], leaving: bool) -> bool:
    failed = starts[key].failed if key in starts else 0
    return not leaving and failed + 1 < START_LIMIT


def _closing_kind(attempt: AttemptSnapshot) -> tuple[ExitKind, str]:
    how = _how_it_ended(attempt)
    if attempt.desired is not None and attempt.desired.stop:
        return ExitKind.STOPPED, f"stopped; {how}"
    return ExitKind.LOST, how


def _how_it_ended(attempt: AttemptSnapshot) -> str:
    if attempt.oom:
        return "its supervisor was killed for want of memory"
    if attempt.last_output and not attempt.began:
        return f"its supervisor ended with status {attempt.code}: {attempt.last_output}"
    if attempt.code is None:
        return "its supervisor is gone, and its exit status is unknown"
    if attempt.code == BAD_SPEC and not attempt.began:
        return "its supervisor could not read its spec; supervisor.log says why"
    if attempt.code == CANNOT_WRITE and not attempt.began:
        return "its supervisor could not write into its spool folder: is the disk full?"
    if attempt.code < 0:
        return f"its supervisor was ended by signal {-attempt.code}"
    return f"its supervisor exited with status {attempt.code} without a last report"
