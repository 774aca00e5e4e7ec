"""Room: runners, agent. What to do, given what the API wants and what runs. Pure: no clock, no I/O, no memory.

``decide`` is asked after everything that happens and on a timer. Its answer holds actions, each of which may be
carried out late, twice or not at all: the next answer is made from what is then the case.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from edt_agent.ledger import Key
from edt_runner.contract import Assignment, ExitKind, Wish
from edt_runner.storage import CANNOT_WRITE

LEAVE_LIMIT_SECONDS = 660.0
"""A leave takes three steps, at most 600 s, and its supervisor sees to that; a minute later the agent does."""
STOP_SLACK_SECONDS = 5.0
"""A stop is given its grace by the supervisor; this much later the agent kills."""
EXIT_SLACK_SECONDS = 10.0
"""So long may a supervisor need to exit after its last report."""
START_SECONDS = 300.0
"""So long may a supervisor import its framework, over a slow network even, before it takes its letter."""
START_LIMIT = 3
"""A supervisor that ends before it takes its letter is started so often, then the attempt is given up."""

BAD_LETTER = 2
"""Exit status of a supervisor that could not read its letter: another start would end the same way."""


class Phase(enum.StrEnum):
    """Where a supervisor stands."""

    LIVE = "live"  # it runs
    ENDED = "ended"  # it has said its last word; its process may need a moment more
    DEAD = "dead"  # it is gone without a last word


@dataclass(frozen=True)
class Running:
    """One attempt as the agent sees it at this instant."""

    phase: Phase
    wish: Wish | None
    """What it has been wished last; None: nothing since this agent knows it."""
    since: float
    """When its wish or phase last changed in kind: asked to leave, asked to stop, ended."""
    grace_seconds: float
    lives: bool = True
    """Its supervisor's process does."""
    empty: bool = False
    """No process of it is left."""
    reported: bool = False
    """The API has all of its reports."""
    written: bool = True
    """Its reports are all on disk, also those that its agent made."""
    last_seq: int = 0
    """Number of its last report."""
    began: bool = True
    """It reported something, so an engine may have run: it must never be started again under this fence."""
    code: int | None = None
    """Exit status of its supervisor, where this agent could see it."""
    oom: bool = False
    """Its supervisor was killed for want of memory."""
    said: str = ""
    """The last that its supervisor printed before it had a log."""
    behind: bool = False
    """There is more in its spool than has been read."""


@dataclass(frozen=True)
class Start:
    """Start a supervisor for this attempt, in place of an earlier one that has ended."""

    assignment: Assignment


@dataclass(frozen=True)
class Tell:
    """Let its supervisor know this wish."""

    key: Key
    wish: Wish


@dataclass(frozen=True)
class Kill:
    """SIGKILL to every process of it."""

    key: Key
    why: str


@dataclass(frozen=True)
class Close:
    """Write its last reports, since nobody else will. For one that never ran here, ``assignment`` says where."""

    key: Key
    kind: ExitKind
    message: str
    assignment: Assignment | None = None


@dataclass(frozen=True)
class Retry:
    """Drop what is known of a supervisor that ended before it took its letter; the start is due again later."""

    key: Key
    why: str


@dataclass(frozen=True)
class Forget:
    """All is said and heard: drop what is known of it."""

    key: Key


Action = Start | Tell | Kill | Close | Retry | Forget


@dataclass(frozen=True)
class Desired:
    """What the API wants of this node."""

    assignments: Mapping[Key, Assignment]
    unreadable: AbstractSet[Key] = frozenset()
    """Listed, but in words of a newer platform: what runs of these is left as it is."""


@dataclass(frozen=True)
class Starts:
    """What earlier starts of an attempt came to."""

    failed: int
    not_before: float
    """On the monotonic clock."""
    why: str
    hopeless: bool = False
    """Another start would end the same way, and it is the job that asks for what cannot be."""


def decide(
    desired: Desired | None,
    running: Mapping[Key, Running],
    starts: Mapping[Key, Starts],
    *,
    leaving: bool,
    now: float,
) -> tuple[Action, ...]:
    """The difference between what should be and what is. ``desired`` is None until the API has answered once.

    ``leaving``: the whole node goes (Ctrl-C), so nothing starts and everything is wished to leave.
    """
    actions: list[Action] = []
    for key, attempt in running.items():
        actions.extend(_tend(key, attempt, desired=desired, starts=starts, leaving=leaving, now=now))
    if desired is not None and not leaving:
        for key, assignment in desired.assignments.items():
            if key not in running or _wanted_again(running[key], assignment):
                actions.extend(_begin(key, assignment, starts.get(key), now))
    return tuple(actions)


def backoff_seconds(failed: int) -> float:
    """How long after the n-th failed start the next is due: 1, 2, 4 … at most 60 seconds."""
    return float(min(60.0, 2.0 ** max(0, failed - 1)))


def _begin(key: Key, assignment: Assignment, starts: Starts | None, now: float) -> Iterator[Action]:
    """An attempt of which nothing runs here, or nothing any more."""
    wish = assignment.wish
    if wish.stop:
        yield Close(key, ExitKind.STOPPED, "stopped before it started on this node", assignment)
    elif not wish.slots:
        yield Close(key, ExitKind.LEFT, "asked to leave before it started on this node", assignment)
    elif starts is None:
        yield Start(assignment)
    elif starts.hopeless:
        yield Close(key, ExitKind.SCRIPT_ERROR, starts.why, assignment)
    elif starts.failed >= START_LIMIT:
        text = f"its supervisor could not be started in {starts.failed} attempts: {starts.why}"
        yield Close(key, ExitKind.LOST, text, assignment)
    elif now >= starts.not_before:
        yield Start(assignment)


def _wanted_again(attempt: Running, assignment: Assignment) -> bool:
    """It left, the API has heard so, and lists it all the same: the job has come back to this node. The next supervisor
    counts the lines on disk, so none of this one's may come behind."""
    over = attempt.phase is Phase.ENDED and attempt.empty and attempt.reported and attempt.written
    return over and assignment.letter.heard >= attempt.last_seq


def _tend(
    key: Key,
    attempt: Running,
    *,
    desired: Desired | None,
    starts: Mapping[Key, Starts],
    leaving: bool,
    now: float,
) -> Iterator[Action]:
    """An attempt of which something runs here, or ran."""
    listed = desired is None or key in desired.assignments or key in desired.unreadable
    match attempt.phase:
        case Phase.LIVE:
            yield from _guide(key, attempt, _wish(key, attempt, desired, leaving), now)
        case Phase.DEAD:
            known = desired is not None or leaving
            yield from _bury(key, attempt, listed if known else None, _may_start_again(key, starts, leaving))
        case Phase.ENDED:
            yield from _see_off(key, attempt, listed, now)


def _guide(key: Key, attempt: Running, wish: Wish | None, now: float) -> Iterator[Action]:
    """Its supervisor runs: tell it what it does not know, and do not wait for ever."""
    if wish is not None and wish != attempt.wish:
        yield Tell(key, wish)
    elif attempt.wish is not None and now > attempt.since + _patience(attempt):
        yield Kill(key, "it was asked to go and did not")
    elif not attempt.began and now > attempt.since + START_SECONDS:
        yield Kill(key, "it did not take its letter")


def _bury(key: Key, attempt: Running, listed: bool | None, may_start_again: bool) -> Iterator[Action]:
    """Its supervisor is gone without a last word: first what it left behind, then the word.

    ``listed`` is None until the API has answered once. The word waits for that: where the platform does not know the
    job its folder may have been moved away, and is not to be made anew for a word that nobody waits for.
    """
    if not attempt.empty:
        yield Kill(key, "its supervisor is gone")
    elif listed is None:
        return
    elif not listed:
        yield Forget(key)
    elif attempt.began or attempt.code == BAD_LETTER or not may_start_again:
        yield Close(key, *_last_word(attempt))
    else:
        yield Retry(key, _how_it_ended(attempt))


def _see_off(key: Key, attempt: Running, listed: bool, now: float) -> Iterator[Action]:
    """It has said its last word: nothing of it may stay, and the API must have heard it."""
    if not attempt.empty:
        if not attempt.lives or now > attempt.since + EXIT_SLACK_SECONDS:
            yield Kill(key, "processes were left behind after its end")
    elif attempt.reported and not listed:
        yield Forget(key)


def _wish(key: Key, attempt: Running, desired: Desired | None, leaving: bool) -> Wish | None:
    """What a live attempt should be told; None: what it knows already."""
    if desired is None or key in desired.unreadable:
        wish = attempt.wish
    elif key in desired.assignments:
        wish = desired.assignments[key].wish
    else:
        # The API has closed this fence: whatever still runs under it works for nobody.
        return Wish(key.fence, (), stop=True)
    if leaving:
        base = wish or Wish(key.fence, ())
        asked_back = tuple(dict.fromkeys((*base.leaving, *(slot.allocation for slot in base.slots))))
        return dataclasses.replace(base, slots=(), leaving=asked_back)
    return wish


def _patience(attempt: Running) -> float:
    """Seconds after ``since`` at which a supervisor that was asked to go is no longer waited for."""
    wish = attempt.wish
    if wish is not None and wish.stop:
        return attempt.grace_seconds + STOP_SLACK_SECONDS
    if wish is not None and not wish.slots:
        return max(LEAVE_LIMIT_SECONDS, attempt.grace_seconds + STOP_SLACK_SECONDS)
    return float("inf")


def _may_start_again(key: Key, starts: Mapping[Key, Starts], leaving: bool) -> bool:
    failed = starts[key].failed if key in starts else 0
    return not leaving and failed + 1 < START_LIMIT


def _last_word(attempt: Running) -> tuple[ExitKind, str]:
    how = _how_it_ended(attempt)
    if attempt.wish is not None and attempt.wish.stop:
        return ExitKind.STOPPED, f"stopped; {how}"
    return ExitKind.LOST, how


def _how_it_ended(attempt: Running) -> str:
    if attempt.oom:
        return "its supervisor was killed for want of memory"
    if attempt.said and not attempt.began:
        return f"its supervisor ended with status {attempt.code}: {attempt.said}"
    if attempt.code is None:
        return "its supervisor is gone, nobody saw how"
    if attempt.code == BAD_LETTER and not attempt.began:
        return "its supervisor could not read its letter; supervisor.log says why"
    if attempt.code == CANNOT_WRITE and not attempt.began:
        return "its supervisor could not write into its spool folder: is the disk full?"
    if attempt.code < 0:
        return f"its supervisor was ended by signal {-attempt.code}"
    return f"its supervisor exited with status {attempt.code} without a last word"
