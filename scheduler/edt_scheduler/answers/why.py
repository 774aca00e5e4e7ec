"""Why a job waits, or has as many slots as it has: the plan's own words and numbers, put together for one job. Pure."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edt_scheduler.answers.changes import number, queue_name
from edt_scheduler.answers.expected import Expected, PastError, expected
from edt_scheduler.answers.forecast import Forecast, forecast
from edt_scheduler.answers.settling import Settled, settled
from edt_scheduler.answers.sight import Hidden, Sight
from edt_scheduler.answers.suggestions import Suggestion, Suggestions, suggestions
from edt_scheduler.answers.verdicts import Nodes, bar, least, verdicts
from edt_scheduler.model.states import Health
from edt_scheduler.plan.carrying import bare
from edt_scheduler.plan.queues import Queue, Sharing, above
from edt_scheduler.plan.sizes import sizes_of, speeds_of
from edt_scheduler.plan.state import Blocking, Explanation, Job, Phase, State

_NAMED = 5
"""So many jobs are named as what blocks another one, or takes from it."""
_KEPT_FROM = {
    Blocking.COOLDOWN: "its back-off is not over",
    Blocking.PAUSED: "the job is paused",
    Blocking.KEY: "its environment cannot be opened",
    Blocking.QUOTA: "its user or queue has all that it is entitled to",
    Blocking.RESERVED: "they are kept for a job that has waited for longer",
    Blocking.TOPOLOGY: "it needs more of them where it can use them together",
    Blocking.DEPENDENCY: "jobs that must be over first are not",
    Blocking.ASKED: "nodes that were asked for are not there",
}
_BY_OTHERS = frozenset(
    {
        Blocking.CAPACITY,
        Blocking.VACATING,
        Blocking.PRIORITY,
        Blocking.QUOTA,
        Blocking.RESERVED,
        Blocking.TOPOLOGY,
        Blocking.ASKED,
    }
)


@dataclass(frozen=True)
class Holder:
    """A job that stands in another one's way, or takes part of what it could have."""

    job: str
    user: str
    queue: str
    priority: int
    slots: int
    """The slots that it holds; 0: it waits, too."""
    nodes: tuple[str, ...]
    sentence: str


@dataclass(frozen=True)
class QueueUse:
    """One queue on the way from a job's own queue to the root."""

    queue: str
    policy: Sharing
    quota: int
    weight: float
    limit: int | None
    held: int
    waiting: int


@dataclass(frozen=True)
class Entitlement:
    """What a job's user may have in its queue, and has."""

    user: str
    queue: str
    entitled: int
    held: int
    jobs: int
    queues: tuple[QueueUse, ...]


@dataclass(frozen=True)
class Waits:
    """Why a job holds no slot. ``rule``: a ``Blocking``; "": it starts with the present plan."""

    rank: int
    waiting: int
    rule: str
    sentence: str
    need: int
    free: int
    not_before: float | None
    by: tuple[Holder, ...]
    hidden: Hidden


class WhyNotMore(enum.StrEnum):
    """What keeps a running job from its next size. The first that holds, in this order."""

    GANG = "gang"  # it is never resized
    COMING = "coming"  # it grows with the present plan
    MAXIMUM = "maximum"  # it has what its user allows at most
    CAPPED = "capped"  # a joining engine could not get the weights, so it stays as it is for some time
    ENGINES = "engines"  # its script has not said yet how many engines it can use, or more would not shorten a step
    MEASURED = "measured"  # it has to be measured on fewer slots first
    BACK_OFF = "back-off"  # it gets nothing until some time has passed after a loss
    QUOTA = "quota"  # its queue has all that it may have
    WORTH = "worth"  # others make more of the slots
    COST = "cost"  # growing would cost more than it brings
    REACH = "reach"  # it is worth a slot, but none is free that its engines can reach


@dataclass(frozen=True)
class NextSize:
    """What keeps a running job from more. ``slots``: its next size; None: there is none."""

    slots: int | None
    rule: WhyNotMore
    sentence: str


@dataclass(frozen=True)
class Holds:
    """Why a job holds as many slots as it does."""

    slots: int
    share: int
    min: int
    max: int
    gain: float
    price: float
    worth: str
    next: NextSize
    takers: tuple[Holder, ...]
    hidden: Hidden


@dataclass(frozen=True)
class Explained:
    """Why one job waits, or has as many slots as it has."""

    job: str
    at: float
    phase: str
    """A ``Phase``, or "over"."""
    sentence: str
    waits: Waits | None = None
    holds: Holds | None = None
    entitlement: Entitlement | None = None
    nodes: Nodes | None = None
    changes: tuple[Suggestion, ...] = ()
    untried: int = 0
    expected: Expected | None = None


def explained(
    state: State,
    name: str,
    *,
    sight: Sight,
    enough: Callable[[], bool],
    soon: Callable[[], bool] = lambda: False,
    come: Forecast | None = None,
    first: float | None = None,
    error: PastError | None = None,
) -> Explained:
    """Explain one job of a state.

    Args:
        state: nodes and jobs at one instant.
        name: the job.
        sight: which other jobs are named.
        enough: whether the time for an answer is over.
        soon: whether the time for the forecast is over, so that some is left for trying changes.
        come: the forecast for this state, if that is known.
        first: the start that was expected when the job began to wait.
        error: how far past estimates were off.
    """
    state = bare(state)
    job = next(each for each in state.jobs if each.id == name)
    present = come.settled if come is not None else settled(state)
    told = present.first.explain[name]
    entitlement = _entitlement(job, state, told)
    if job.phase is Phase.ENDING:
        return Explained(name, state.now, job.phase, f"{name} ends.", entitlement=entitlement)
    come = come or forecast(state, wanted=[name], enough=soon, begun=present)
    waits = job.phase is Phase.WAITING
    when = expected(name, come, state.now, waits=waits, first=first, error=error)
    if waits:
        blockers = _blockers(job, state, told)
        reasons = _waits(job, state, present, told, blockers, sight)
        nodes = verdicts(job, present, _kept_from(job, told.blocking), sight)
        tried = Suggestions(()) if present.held(name) else suggestions(job, state, present, blockers, sight, enough)
        sentence = " ".join([f"{name} waits: {reasons.sentence}.", when.sentence, *_would(tried)])
        return Explained(
            name, state.now, job.phase, sentence, reasons, None, entitlement, nodes, tried.items, tried.untried, when
        )
    holds = _holds(job, state, present, told, sight)
    takers = [holder.job for holder in holds.takers]
    tried = suggestions(job, state, present, takers, sight, enough)
    sentence = f"{name} {sight.text(told.reason)}; {holds.next.sentence}. {when.sentence}"
    return Explained(
        name, state.now, job.phase, sentence, None, holds, entitlement, None, tried.items, tried.untried, when
    )


def over(name: str, now: float, state: str) -> Explained:
    """What is said of a job that is over."""
    return Explained(name, now, "over", f"{name} is over: {state}.")


def _would(tried: Suggestions) -> list[str]:
    return [f"It starts now if {tried.items[0].sentence}."] if tried.items else []


def _kept_from(job: Job, blocking: Blocking | None) -> str:
    if blocking is not None and blocking in _KEPT_FROM:
        return _KEPT_FROM[blocking]
    if (need := least(job)) > 1:
        return f"it needs {number(need)} at once"
    return "jobs that come before it get them"


# ── a job that waits ──────────────────────────────────────────────────────────────────────────────────────────────────


def _waits(job: Job, state: State, present: Settled, told: Explanation, blockers: Sequence[str], sight: Sight) -> Waits:
    waiting = sum(each.rank > 0 for each in present.first.explain.values())
    by, hidden = _holders(blockers, state, sight, lambda other: _in_the_way(job, other))
    rule, sentence = told.blocking.value if told.blocking else "", sight.text(told.reason)
    if told.blocking is None:
        sentence = f"it starts now on {number(present.held(job.id))}"
    elif (plans := present.since.get(job.id)) is not None:
        when = "it starts as soon as slots are vacated for it"
        sentence = f"{sentence}; {when}" if plans > 1 else sentence
    finite = job.not_before is not None and state.now < job.not_before < math.inf
    return Waits(
        told.rank, waiting, rule, sentence, told.need, told.free, job.not_before if finite else None, by, hidden
    )


def _blockers(job: Job, state: State, told: Explanation) -> Sequence[str]:
    """What stands in a waiting job's way: the plan's own answer, or else who holds the slots that it could use."""
    if told.by:
        return told.by
    if told.blocking is Blocking.DEPENDENCY:
        return job.after
    if told.blocking not in _BY_OTHERS:
        return ()
    usable = _usable(job, state)
    there = [(other, sum(other.alloc.get(name, 0) for name in usable)) for other in state.jobs if other.id != job.id]
    mine = told.blocking is Blocking.QUOTA
    holding = [each for each in there if each[1]]
    holding.sort(key=lambda each: (mine and (each[0].queue, each[0].user) != (job.queue, job.user), -each[1]))
    return [other.id for other, _ in holding[:_NAMED]]


def _usable(job: Job, state: State) -> set[str]:
    """The nodes that take work and could take the job."""
    return {node.id for node in state.nodes if node.health is Health.UP and bar(job, node) is None}


def _in_the_way(job: Job, other: Job) -> str:
    if other.id in job.after:
        return "must be over first"
    if not other.held:
        return f"waits before it and needs {number(least(other))}"
    return f"holds {number(other.held)}" + (f" with priority {other.priority}" if other.priority > job.priority else "")


def _holders(
    names: Sequence[str], state: State, sight: Sight, say: Callable[[Job], str]
) -> tuple[tuple[Holder, ...], Hidden]:
    by_id = {job.id: job for job in state.jobs}
    jobs = [by_id[name] for name in names if name in by_id]
    seen, hidden = sight.split((job.id, job.held) for job in jobs)
    found = []
    for name, slots in seen[:_NAMED]:
        job = by_id[name]
        nodes = tuple(sorted(node for node, number in job.alloc.items() if number))
        found.append(Holder(name, job.user, job.queue, job.priority, slots, nodes, say(job)))
    return tuple(found), hidden


# ── a job that runs ───────────────────────────────────────────────────────────────────────────────────────────────────


def _holds(job: Job, state: State, present: Settled, told: Explanation, sight: Sight) -> Holds:
    usable = _usable(job, state)
    explain = present.first.explain
    others = [
        other
        for other in state.jobs
        if other.id != job.id and other.phase is Phase.RUNNING and any(other.alloc.get(name) for name in usable)
    ]
    others.sort(key=lambda other: (-explain[other.id].gain, -other.held, other.submit))

    def say(other: Job) -> str:
        gain = explain[other.id].gain
        worth = f"; its next slot is worth {gain:.2g} of the price to it" if gain else ""
        return f"holds {number(other.held)}{worth}"

    takers, hidden = _holders([other.id for other in others], state, sight, say)
    return Holds(
        job.held,
        told.target,
        job.min,
        job.max,
        told.gain,
        told.price,
        _worth(told),
        _next(job, state, present, told),
        takers,
        hidden,
    )


def _worth(told: Explanation) -> str:
    if not told.gain and not told.price:
        return "slots have no price now: no job has more than its least size"
    if not told.gain:
        return "more slots are worth nothing to it now"
    less = "others make more of it" if told.gain < 1 else "it makes at least as much of it as others"
    return f"its next slot is worth {told.gain:.2g} of the price of a slot to it: {less}"


def _next(job: Job, state: State, present: Settled, told: Explanation) -> NextSize:
    """The next size of a running job, and what keeps it from it."""
    if job.gang:
        return NextSize(None, WhyNotMore.GANG, "a gang is never resized")
    if (then := present.held(job.id)) > job.held:
        return NextSize(then, WhyNotMore.COMING, f"it grows to {number(then)} now")
    if job.held >= job.max:
        return NextSize(None, WhyNotMore.MAXIMUM, f"it has the {number(job.max)} that its user allows at most")
    if job.cap is not None and job.cap_until is not None and job.cap_until > state.now and job.held >= job.cap:
        left = f"for {job.cap_until - state.now:.0f} s"
        return NextSize(None, WhyNotMore.CAPPED, f"it stays at {job.cap} {left}: a joining engine got no weights")
    if job.engines is None and not job.allowed:
        why = "its script has not said yet how many engines it can use"
        return NextSize(None, WhyNotMore.ENGINES, why)
    larger = [size for size in sizes_of(job) if size > job.held]
    if not larger:
        why = f"its step has {job.engines} micro-batches, which no number of slots up to {job.max} does in fewer rounds"
        return NextSize(None, WhyNotMore.ENGINES, why)
    size = larger[0]
    per_node = max((node.slots for node in state.nodes), default=1)
    if size not in speeds_of(job, per_node, state.weights)[0].of:
        why = f"it could have {number(size)}, but has to be measured on fewer first"
        return NextSize(size, WhyNotMore.MEASURED, why)
    could = f"it could have {number(size)}, but "
    if job.not_before is not None and job.not_before > state.now:
        return NextSize(size, WhyNotMore.BACK_OFF, f"{could}gets nothing until its back-off is over")
    if (full := _full_queue(job, state)) is not None:
        return NextSize(size, WhyNotMore.QUOTA, f"{could}{queue_name(full.id)} holds its limit of {full.limit}")
    if not told.gain and not told.price:
        return NextSize(size, WhyNotMore.WORTH, f"{could}all slots go to the least sizes of jobs")
    if not told.gain:
        return NextSize(size, WhyNotMore.COST, f"{could}growing would cost more than it brings")
    if told.gain < 1:
        return NextSize(size, WhyNotMore.WORTH, f"{could}a slot is worth {told.gain:.2g} of its price to it")
    return NextSize(size, WhyNotMore.REACH, f"{could}no slot that its engines can reach is free")


def _full_queue(job: Job, state: State) -> Queue | None:
    """The job's queue or one above it that holds its limit; None: none does."""
    path = {*above(job.queue), ""}
    for queue in state.queues:
        if queue.id in path and queue.limit is not None and _inside(queue.id, state)[0] >= queue.limit:
            return queue
    return None


# ── what its user may have ────────────────────────────────────────────────────────────────────────────────────────────


def _entitlement(job: Job, state: State, told: Explanation) -> Entitlement:
    mine = [other for other in state.jobs if (other.queue, other.user) == (job.queue, job.user)]
    queues = {queue.id: queue for queue in state.queues}
    uses = []
    for path in (*above(job.queue), ""):
        queue = queues.get(path, Queue(path))
        held, waiting = _inside(path, state)
        policy = next((queues[each].policy for each in (*above(path), "") if each in queues), Sharing.EFFICIENT)
        uses.append(QueueUse(path, policy, queue.quota, queue.weight, queue.limit, held, waiting))
    held = sum(other.held for other in mine)
    return Entitlement(job.user, job.queue, told.entitled, held, len(mine), tuple(uses))


def _inside(path: str, state: State) -> tuple[int, int]:
    """The slots that jobs of a queue and of those below it hold, and how many of these jobs wait."""
    inside = [job for job in state.jobs if not path or path in above(job.queue)]
    return sum(job.held for job in inside), sum(job.phase is Phase.WAITING for job in inside)
