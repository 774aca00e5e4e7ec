"""What changes of a state do to its jobs: the plans and forecasts before and after are compared. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edt_scheduler.answers.changes import NEW, Change, JobStopped, changed, number, said
from edt_scheduler.answers.expected import span
from edt_scheduler.answers.forecast import Forecast, forecast
from edt_scheduler.answers.sight import Sight
from edt_scheduler.plan.carrying import bare, slots_up
from edt_scheduler.plan.state import State

MOST_JOBS = 200
_ALIKE_SECONDS, _ALIKE_SHARE = 5.0, 0.02
"""Two expected times are alike if they differ by no more than this: seconds, and a part of how far they are ahead."""


class Effect(enum.StrEnum):
    """What a change does to one job."""

    STARTS = "starts"  # it starts at once
    WAITS = "waits"  # it has slots now, and would wait
    GROWS = "grows"
    SHRINKS = "shrinks"
    EARLIER = "earlier"  # it is expected to start, or to end, earlier
    LATER = "later"


@dataclass(frozen=True)
class Outlook:
    """What one job has, and when it is expected to start and to end."""

    slots: int
    start: float | None
    end: float | None


@dataclass(frozen=True)
class JobEffect:
    """One job to which a change does something."""

    job: str
    user: str
    effect: Effect
    before: Outlook
    after: Outlook
    sentence: str


@dataclass(frozen=True)
class Totals:
    """The whole platform at once."""

    slots: int
    used: int
    running: int
    waiting: int
    price: float
    mean_start_seconds: float | None


@dataclass(frozen=True)
class WhatIf:
    """What would be different, and for whom."""

    at: float
    sentence: str
    assumed: tuple[str, ...]
    jobs: tuple[JobEffect, ...]
    hidden: Mapping[str, int]
    before: Totals
    after: Totals
    until: float


def what_if(state: State, changes: Sequence[Change], *, sight: Sight, until: Sequence[Callable[[], bool]]) -> WhatIf:
    """Compare a state with the same one after changes.

    Args:
        state: nodes and jobs at one instant.
        changes: what is assumed, all together.
        sight: which jobs are named.
        until: whether the time for the forecast before, and for the one after, is over.

    Raises:
        ChangeInvalid: a change names something that is not there, or asks for what cannot be.
    """
    state = bare(state)
    then = changed(state, *changes)
    first, second = until
    before, after = forecast(state, enough=first), forecast(then, enough=second)
    gone = {change.job for change in changes if isinstance(change, JobStopped)}
    effects = compared(state, before, then, after, gone)
    seen = [each for each in effects if each.job == NEW or sight.sees(each.job)][:MOST_JOBS]
    named = {each.job for each in seen}
    hidden = dict(Counter(each.effect.value for each in effects if each.job not in named))
    return WhatIf(
        state.now,
        _summary(effects),
        tuple(sight.text(each) for each in said(changes)),
        tuple(seen),
        hidden,
        _totals(before),
        _totals(after),
        min(before.until, after.until),
    )


def compared(
    state: State, before: Forecast, then: State, after: Forecast, gone: set[str] | frozenset[str] = frozenset()
) -> list[JobEffect]:
    """The jobs to which a change does something, those with the largest changes first.

    Args:
        state: the state as it is.
        before: its forecast.
        then: the changed state.
        after: its forecast.
        gone: jobs that the change itself has ended.
    """
    until = min(before.until, after.until)
    found = []
    known = {job.id for job in state.jobs}
    for job in then.jobs:
        if job.id in gone:
            continue
        one, other = _outlook(job.id, before, until), _outlook(job.id, after, until)
        if job.id not in known:
            effect: Effect | None = Effect.STARTS if other.slots else Effect.WAITS
        else:
            effect = _effect(one, other, state.now)
        if effect is not None:
            sentence = _sentence(one, other, effect, state.now, is_new=job.id not in known)
            found.append(JobEffect(job.id, job.user, effect, one, other, sentence))
    found.sort(key=lambda each: (each.job in known, *_size(each, state.now)))
    return found


def _outlook(job: str, found: Forecast, until: float) -> Outlook:
    start, end = found.starts.get(job), found.ends.get(job)
    return Outlook(
        found.settled.held(job),
        start if start is not None and start <= until else None,
        end if end is not None and end <= until else None,
    )


def _effect(before: Outlook, after: Outlook, now: float) -> Effect | None:
    if before.slots != after.slots:
        if not before.slots:
            return Effect.STARTS
        if not after.slots:
            return Effect.WAITS
        return Effect.GROWS if after.slots > before.slots else Effect.SHRINKS
    for one, other in ((before.start, after.start), (before.end, after.end)):
        if one is None and other is None:
            continue
        if one is None or other is None:
            return Effect.EARLIER if one is None else Effect.LATER
        if abs(other - one) > _ALIKE_SECONDS + _ALIKE_SHARE * (max(one, other) - now):
            return Effect.EARLIER if other < one else Effect.LATER
    return None


def _sentence(before: Outlook, after: Outlook, effect: Effect, now: float, *, is_new: bool) -> str:
    if effect is Effect.STARTS:
        start = f"starts on {number(after.slots)}"
        if is_new or before.start is None:
            return start
        return f"{start}, {span(before.start - now)} earlier"
    if effect is Effect.WAITS:
        begin = "waits" if is_new else f"loses its {number(before.slots)} and waits"
        return f"{begin}, {_when('to start', after.start, now)}"
    if effect in {Effect.GROWS, Effect.SHRINKS}:
        return f"{effect} from {before.slots} to {number(after.slots)}"
    what, one, other = "start", before.start, after.start
    if one == other or (one is None and other is None):
        what, one, other = "end", before.end, after.end
    if one is None or other is None:
        return f"is {_when(f'to {what}', other, now)}, and {_when(f'to {what}', one, now)} without the change"
    return f"is expected to {what} {span(abs(other - one))} {effect}, in {span(other - now)}"


def _when(what: str, at: float | None, now: float) -> str:
    return f"not expected {what} within the forecast" if at is None else f"expected {what} in {span(at - now)}"


def _size(each: JobEffect, now: float) -> tuple[int, float]:
    """How large a change is, for sorting the largest first."""
    seconds = 0.0
    for one, other in ((each.before.start, each.after.start), (each.before.end, each.after.end)):
        if one is not None and other is not None:
            seconds = max(seconds, abs(one - other))
        elif one is not None or other is not None:
            seconds = max(seconds, (one or other or now) - now)
    return -abs(each.before.slots - each.after.slots), -seconds


def _summary(effects: Sequence[JobEffect]) -> str:
    counts = Counter(each.effect for each in effects)
    if not counts:
        return "Nothing changes for any job."
    words = {
        Effect.STARTS: ("starts at once", "start at once"),
        Effect.WAITS: ("waits", "wait"),
        Effect.GROWS: ("grows", "grow"),
        Effect.SHRINKS: ("shrinks", "shrink"),
        Effect.EARLIER: ("starts or ends earlier", "start or end earlier"),
        Effect.LATER: ("starts or ends later", "start or end later"),
    }
    parts = [f"{counts[effect]} {words[effect][counts[effect] > 1]}" for effect in Effect if counts[effect]]
    return f"Of {len(effects)} job{'' if len(effects) == 1 else 's'} that it concerns, {', '.join(parts)}."


def _totals(found: Forecast) -> Totals:
    state, last = found.settled.state, found.settled.last
    held = {name: sum(slots.values()) for name, slots in last.alloc.items()}
    waits = [start - state.now for start in found.starts.values()]
    return Totals(
        slots_up(state),
        sum(held.values()),
        sum(1 for slots in held.values() if slots),
        sum(1 for job in state.jobs if not held.get(job.id)),
        max((each.price for each in last.explain.values()), default=0.0),
        sum(waits) / len(waits) if waits else None,
    )
