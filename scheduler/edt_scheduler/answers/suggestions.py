"""What would start a waiting job now, or give a running one more: changes that were tried. Pure.

Each candidate is applied to the state, and plans are carried out on it. It is suggested only if the job then has what
it lacks. Of a number the smallest change that is enough is sought.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from edt_scheduler.answers.changes import (
    Change,
    JobResumed,
    JobStopped,
    JobWith,
    MoreSlots,
    NodeOpened,
    QueueWith,
    changed,
    number,
    said,
    usual_device,
)
from edt_scheduler.answers.settling import Settled, settled
from edt_scheduler.answers.sight import Sight
from edt_scheduler.answers.verdicts import bar, least
from edt_scheduler.model.nodes import Device
from edt_scheduler.model.states import Health
from edt_scheduler.plan.carrying import slots_up
from edt_scheduler.plan.queues import Queue, above
from edt_scheduler.plan.state import Job, Phase, State

_SEVERAL = 3
"""So many nodes, models and jobs of a kind are suggested at most."""
_TRIES = 8
"""So many of each are tried at most."""


@dataclass(frozen=True)
class Suggestion:
    """A change that was tried: with it, the job starts, or gets more slots."""

    change: Change
    sentence: str
    slots: int
    """The slots that the job then has."""
    plans: int
    """After how many plans, each of them carried out."""
    resubmit: bool = False
    """Whether the job has to be submitted anew for it."""


@dataclass(frozen=True)
class Suggestions:
    """What was found. ``untried``: how many further kinds of changes were not tried for lack of time."""

    items: tuple[Suggestion, ...]
    untried: int = 0


def suggestions(
    job: Job, state: State, present: Settled, blockers: Sequence[str], sight: Sight, enough: Callable[[], bool]
) -> Suggestions:
    """Try what could start a waiting job, or let a running one grow.

    Args:
        job: the job, as it is in ``state``.
        state: the state now, without names of slots.
        present: what the plans for it come to without any change.
        blockers: jobs that stand in its way, the most important first.
        sight: only jobs that the viewer may see are suggested to be stopped.
        enough: whether the time for an answer is over.
    """
    tries = _Tries(job, state, present.held(job.id), enough)
    found: list[Suggestion] = []
    kinds = list(_kinds(job, state, tries, blockers, sight))
    for place, kind in enumerate(kinds):
        if enough():
            return Suggestions(tuple(found), len(kinds) - place)
        found += kind()
    return Suggestions(tuple(found))


class _Tries:
    """Tries changes of one state for one job."""

    def __init__(self, job: Job, state: State, has: int, enough: Callable[[], bool]) -> None:
        self._job, self._state, self._has, self._enough = job, state, has, enough
        self._known: dict[Change, Suggestion | None] = {}

    def one(self, change: Change) -> Suggestion | None:
        """The change as a suggestion; None: the job has no more slots with it than without."""
        if change not in self._known:
            then = settled(changed(self._state, change))
            slots = then.held(self._job.id)
            plans = then.since.get(self._job.id, 1)
            found = Suggestion(change, self._said(change), slots, plans, self._resubmits(change))
            self._known[change] = found if slots > self._has else None
        return self._known[change]

    def _said(self, change: Change) -> str:
        if self._job.gang and isinstance(change, JobWith) and change.max is not None:
            return f"{change.job} asks for {number(change.max)}"
        (sentence,) = said([change])
        return sentence

    def _resubmits(self, change: Change) -> bool:
        """Whether it changes what a job is for good once it is submitted."""
        if not isinstance(change, JobWith):
            return False
        given = change.device, change.models, change.image, change.max if self._job.gang else None
        return any(each is not None for each in given)

    def first(self, values: Sequence[int], make: Callable[[int], Change]) -> list[Suggestion]:
        """The change with the first of these values that is enough, if the last of them is. Enough stays enough."""
        if not values or (best := self.one(make(values[-1]))) is None:
            return []
        low, high = 0, len(values) - 1
        while low < high and not self._enough():
            middle = (low + high) // 2
            found = self.one(make(values[middle]))
            if found is not None:
                best, high = found, middle
            else:
                low = middle + 1
        return [best]

    def some(self, changes: Iterable[Change]) -> list[Suggestion]:
        """Those of the first few changes that are enough, a few of them."""
        found: list[Suggestion] = []
        for tried, change in enumerate(changes):
            if tried == _TRIES or len(found) == _SEVERAL or (tried and self._enough()):
                break
            if (one := self.one(change)) is not None:
                found.append(one)
        return found


_Kind = Callable[[], list[Suggestion]]


def _kinds(job: Job, state: State, tries: _Tries, blockers: Sequence[str], sight: Sight) -> Iterator[_Kind]:
    """The kinds of changes that may help, the mildest first."""
    if job.paused is not None:
        yield lambda: tries.some([JobResumed(job.id)])
        return
    if job.gang and job.phase is Phase.RUNNING:
        return
    waits = job.phase is Phase.WAITING
    if before := [name for name in job.after if sight.sees(name)]:
        yield lambda: tries.some(JobStopped(name) for name in before)
    yield lambda: tries.first(_priorities(job, state), lambda value: JobWith(job.id, priority=value))
    if not waits and job.held >= job.max:
        larger = [job.max + more for more in range(1, max(2, slots_up(state) - job.max + 1))]
        yield lambda: tries.first(larger, lambda value: JobWith(job.id, max=value))
    if waits and least(job) > job.unit:
        yield lambda: tries.first(_fewer(job), lambda value: _with_least(job, value))
    if waits and job.device is not None:
        other = Device.CPU if job.device is Device.GPU else Device.GPU
        yield lambda: tries.some([JobWith(job.id, device=other.value)])
    if waits and job.models:
        others = sorted({node.model for node in state.nodes if node.model and node.model not in job.models})
        yield lambda: tries.some(JobWith(job.id, models=(name,)) for name in others)
    if waits and job.image is not None:
        yield lambda: tries.some([JobWith(job.id, image=False)])
    shut = [
        node for node in state.nodes if node.health in {Health.CORDONED, Health.DRAINING} and bar(job, node) is None
    ]
    if shut:
        shut.sort(key=lambda node: (-node.slots, node.id))
        yield lambda: tries.some(NodeOpened(node.id) for node in shut)
    for queue in _limited(job, state):
        yield lambda queue=queue: _limit(tries, queue, state)  # type: ignore[misc]
    for path in above(job.queue):
        quota = next((each.quota for each in state.queues if each.id == path), 0)
        yield lambda path=path, quota=quota: tries.first(  # type: ignore[misc]
            range(quota + 1, slots_up(state) + 1), lambda value: QueueWith(path, quota=value)
        )
    yield lambda: tries.first(_more(job, state), lambda value: _more_slots(job, state, value))
    if rivals := [name for name in _rivals(job, state, blockers) if sight.sees(name)]:
        yield lambda: tries.some(JobStopped(name) for name in rivals)


def _priorities(job: Job, state: State) -> list[int]:
    """The priorities that could make a difference: that of each more important job, and one above it."""
    others = {other.priority for other in state.jobs if other.id != job.id and other.priority >= job.priority}
    return sorted({value for each in others for value in (each, each + 1) if value > job.priority})


def _fewer(job: Job) -> list[int]:
    """Smaller numbers of slots with which a waiting job might start, the largest first."""
    return list(range(least(job) - job.unit, 0, -job.unit))


def _with_least(job: Job, value: int) -> Change:
    return JobWith(job.id, max=value) if job.gang else JobWith(job.id, min=value)


def _more(job: Job, state: State) -> list[int]:
    """Numbers of further slots to try."""
    need = least(job) if job.phase is Phase.WAITING else 1
    most = max(need, min(slots_up(state), 16 * need), 8)
    return [*range(1, min(most, 64) + 1), *(size for size in (128, 256, 512, 1024, 2048, 4096) if 64 < size <= most)]


def _more_slots(job: Job, state: State, slots: int) -> Change:
    """So many further slots, of the kind that the job can use."""
    device = job.device or usual_device(state)
    containers = True if job.image is not None else None
    return MoreSlots(slots, device, job.models[0] if job.models else "", containers)


def _limited(job: Job, state: State) -> list[Queue]:
    """The job's queue and those above it that have a limit."""
    path = {*above(job.queue), ""}
    return [queue for queue in state.queues if queue.id in path and queue.limit is not None]


def _limit(tries: _Tries, queue: Queue, state: State) -> list[Suggestion]:
    limit = queue.limit or 0
    most = max(limit + 1, slots_up(state))
    return tries.first(range(limit + 1, most + 1), lambda value: QueueWith(queue.id, limit=value))


def _rivals(job: Job, state: State, blockers: Sequence[str]) -> list[str]:
    """Jobs that hold slots and whose end could help: those that stand in the way first, then the job's user's own."""
    holding = {other.id: other for other in state.jobs if other.held and other.id != job.id}
    first = [name for name in blockers if name in holding]
    others = sorted(
        (other for other in holding.values() if other.id not in first),
        key=lambda other: (other.user != job.user, -other.held, other.submit),
    )
    return [*first, *(other.id for other in others)]
