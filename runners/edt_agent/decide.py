"""Chooses the agent's next actions from the API's assignments and the running attempts. It is pure: it has no clock,
no I/O and no state.

The agent calls ``decide`` after each event and by timer. An action may be done late, twice or not at all: the next call
decides again from the situation at that time.
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
"""Seconds after which the agent kills an attempt that was asked to leave. This is one minute more than the 600 s after
which a supervisor kills its engines at the latest."""
STOP_SLACK_SECONDS = 5.0
"""Seconds after the end of a stop's grace at which the agent kills. The supervisor itself kills when the grace ends."""
EXIT_SLACK_SECONDS = 10.0
"""Seconds that a supervisor may need to exit after its last report."""
START_SECONDS = 300.0
"""Seconds that a supervisor may need to import its framework, also over a slow network, before it takes its spec."""
START_LIMIT = 3
"""Number of starts after which the agent gives up an attempt whose supervisor ends before it takes its spec."""

BAD_SPEC = 2
"""Exit status of a supervisor that could not read its spec. Another start would end in the same way."""


class Phase(enum.StrEnum):
    """The phases of a supervisor."""

    LIVE = "live"  # it runs
    ENDED = "ended"  # it has written its last report; its process may still be exiting
    DEAD = "dead"  # it is gone without a last report


@dataclass(frozen=True)
class AttemptSnapshot:
    """One attempt as the agent sees it at one instant."""

    phase: Phase
    desired: DesiredState | None
    """The newest desired state that this agent has set for the supervisor; None: it has set none yet."""
    since: float
    """Monotonic seconds at which the attempt was asked to leave, was asked to stop, or entered its phase, whichever is
    newest."""
    grace_seconds: float
    gang: bool = False
    """Whether the attempt runs a gang, whose processes leave within ``grace_seconds``."""
    lives: bool = True
    """Whether the supervisor's process runs."""
    empty: bool = False
    """Whether no process of the attempt is left."""
    reported: bool = False
    """Whether the API has all reports of the attempt."""
    written: bool = True
    """Whether all reports are on disk, also those that this agent made."""
    last_seq: int = 0
    """Number of the last report."""
    began: bool = True
    """Whether the supervisor has taken its spec or reported something. Then an engine may have run, and the attempt
    must not be started again under this fence after a failure."""
    code: int | None = None
    """Exit status of the supervisor, or minus the signal that ended it; None: this agent does not know it."""
    oom: bool = False
    """Whether the kernel killed the supervisor because memory ran out."""
    killed: str = ""
    """Why this agent killed the supervisor, in words for the job's user; "": it did not."""
    last_output: str = ""
    """The last line that the supervisor printed before it had a log."""
    behind: bool = False
    """Whether the spool holds reports that were not read yet."""


@dataclass(frozen=True)
class Start:
    """Start a supervisor for this attempt. An earlier supervisor of the attempt, if there was one, has ended."""

    key: Key
    assignment: Assignment


@dataclass(frozen=True)
class SendDesired:
    """Send this desired state to the attempt's supervisor."""

    key: Key
    desired: DesiredState


@dataclass(frozen=True)
class Kill:
    """Send SIGKILL to every process of the attempt."""

    key: Key
    why: str
    """The reason, for the log."""


@dataclass(frozen=True)
class Close:
    """Write an attempt's last reports, because its supervisor is gone or was never started."""

    key: Key
    kind: ExitKind
    message: str
    assignment: Assignment | None = None
    """The assignment of an attempt that does not run here; None: its supervisor ran here and is gone."""


@dataclass(frozen=True)
class Retry:
    """Drop a supervisor that ended before it took its spec. The agent starts another one later."""

    key: Key
    why: str


@dataclass(frozen=True)
class Forget:
    """Drop an attempt that is over: the API has all its reports."""

    key: Key


Action = Start | SendDesired | Kill | Close | Retry | Forget


@dataclass(frozen=True)
class Assigned:
    """The assignments that the API lists for this node."""

    assignments: Mapping[Key, Assignment]
    unreadable: AbstractSet[Key] = frozenset()
    """Attempts whose assignments are in the format of another release. The agent does not change what runs of them."""


@dataclass(frozen=True)
class FailedStarts:
    """The failed starts of an attempt."""

    failed: int
    """Number of failed starts."""
    not_before: float
    """Monotonic seconds before which it is not started again."""
    why: str
    """Why the last start failed, in words for the job's user."""
    hopeless: bool = False
    """Whether another start would fail in the same way, because the job asks for something that does not exist."""


def decide(
    assigned: Assigned | None,
    running: Mapping[Key, AttemptSnapshot],
    starts: Mapping[Key, FailedStarts],
    *,
    leaving: bool,
    now: float,
) -> tuple[Action, ...]:
    """The next actions, so that the attempts that run become those that the API has assigned.

    Args:
        assigned: the assignments; None: the API has not answered yet.
        running: a snapshot of each attempt that the agent knows.
        starts: the failed starts of attempts.
        leaving: whether the whole node leaves (Ctrl-C). Then nothing is started, and every attempt is asked to leave.
        now: monotonic seconds.

    Returns:
        The actions, in the order in which the agent should do them.
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
    """Actions for an assigned attempt that does not run here, or no longer runs here."""
    desired = assignment.desired
    if desired.stop:
        yield Close(key, ExitKind.STOPPED, "stopped before it started on this node", assignment)
    elif not desired.slots:
        yield Close(key, ExitKind.LEFT, "asked to leave before it started on this node", assignment)
    elif assignment.spec.gang is not None and assignment.spec.last_report_seq:
        # It has run here, and its records are lost. A gang's programs never run twice in one attempt.
        yield Close(key, ExitKind.LOST, "its supervisor is gone, and its exit status is unknown", assignment)
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
    """Whether an attempt that has left must be started here again. This is so if the API has its last report and still
    lists it. The next supervisor numbers its reports after the lines on disk, so all lines must be written. A gang's
    programs never run twice in one attempt."""
    if assignment.spec.gang is not None:
        return False
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
    """Actions for an attempt that runs here, or ran here."""
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
    """The supervisor runs: send a new desired state, and kill the attempt if it does not leave in time."""
    if desired is not None and desired != attempt.desired:
        yield SendDesired(key, desired)
    elif attempt.desired is not None and now > attempt.since + _limit_seconds(attempt):
        yield Kill(key, "it was asked to leave and did not in time")
    elif not attempt.began and now > attempt.since + START_SECONDS:
        yield Kill(key, "it did not take its spec")


def _for_dead(key: Key, attempt: AttemptSnapshot, listed: bool | None, may_start_again: bool) -> Iterator[Action]:
    """The supervisor is gone without a last report: first kill the processes that it left, then write the report.

    ``listed`` is None until the API has answered once. The report waits for this answer. If the platform does not know
    the job, it may have moved the job's folder away, and the agent must not make the folder again.
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
    """The last report is written: kill processes that remain, and forget the attempt once the API has the report."""
    if not attempt.empty:
        if not attempt.lives or now > attempt.since + EXIT_SLACK_SECONDS:
            yield Kill(key, "processes were left behind after its end")
    elif attempt.reported and not listed:
        yield Forget(key)


def _desired(key: Key, attempt: AttemptSnapshot, assigned: Assigned | None, leaving: bool) -> DesiredState | None:
    """The desired state of a live attempt; None: there is no desired state to send."""
    if assigned is None or key in assigned.unreadable:
        desired = attempt.desired
    elif key in assigned.assignments:
        desired = assigned.assignments[key].desired
    else:
        # The API has closed this fence, so the result of this attempt is not needed.
        return DesiredState(key.fence, (), stop=True)
    if leaving:
        base = desired or DesiredState(key.fence, ())
        asked_back = tuple(dict.fromkeys((*base.leaving, *(slot.allocation for slot in base.slots))))
        return dataclasses.replace(base, slots=(), leaving=asked_back)
    return desired


def _limit_seconds(attempt: AttemptSnapshot) -> float:
    """Seconds after ``since`` at which a supervisor that was asked to leave or stop is killed."""
    desired = attempt.desired
    if desired is not None and (desired.stop or (attempt.gang and not desired.slots)):
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
    if attempt.killed:
        return f"its supervisor was killed: {attempt.killed}"
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
