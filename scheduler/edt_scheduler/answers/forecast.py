"""When each job will start and end: the plan is carried out on a virtual clock, event by event. Pure.

At each event the plans are made that the scheduler would make, and carried out. The next event is the next end of a
job, of a back-off or of a cap. A job ends when its steps are done, at the speed of its curve, or at its time limit. A
job that has not said how many steps it has left is taken to need as long again as it has trained, and at least ten
minutes. Nobody submits anything meanwhile, no node fails, and the usage of users is as it is now. So a forecast is
what follows from what is known, and past ones are compared with what came (operations/answers.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from edt_scheduler.answers.settling import LOOKS, Settled, settled
from edt_scheduler.plan.carrying import bare, slots_up, without
from edt_scheduler.plan.sizes import speeds_of
from edt_scheduler.plan.state import Blocking, Job, State

UNKNOWN_SECONDS = 600.0
"""The least time for which a job still trains of which nothing is known."""
HORIZON_SECONDS = 14 * 86_400.0
"""How far a forecast looks ahead at most."""
MOST_PLANS = 2000
_IN_TURN = frozenset(
    {
        *(Blocking.CAPACITY, Blocking.VACATING, Blocking.QUOTA, Blocking.PRIORITY, Blocking.RESERVED),
        *(Blocking.TOPOLOGY, Blocking.ASKED),
    }
)
"""Jobs that wait by these rules get slots in turn, as others end."""
_TOGETHER_SECONDS, _TOGETHER_SHARE = 1.0, 0.003
"""Events that are so close together are decided on at once: a second, and more when they are far ahead."""


@dataclass(frozen=True)
class Forecast:
    """What is expected to come. Times are seconds since the epoch."""

    starts: Mapping[str, float]
    """Job that waits at first to the start of its next attempt; without those that do not start until ``until``."""
    ends: Mapping[str, float]
    """Job to its end; without those that do not end until ``until``."""
    until: float
    """How far the forecast goes. Nothing is said about later times."""
    guessed: frozenset[str]
    """Jobs whose work is not known."""
    settled: Settled
    """What the present plans come to."""
    plans: int
    whole: bool
    """Whether it was not cut short: who is not among ``starts`` does not start, as far as it is known now."""

    def start_of(self, job: str) -> tuple[float | None, bool]:
        """When a job that waits is expected to start, and whether that is only reckoned from the pace of starts.

        If the forecast was cut short before, others have started until then in some time. At this pace the job's place
        among those that wait is reached later. None: nothing can be said.
        """
        if job in self.starts or self.whole or not self.starts:
            return self.starts.get(job), False
        told = self.settled.first.explain[job]
        now = self.settled.state.now
        later = sum(start > now for start in self.starts.values())
        if told.blocking not in _IN_TURN or told.need > slots_up(self.settled.state) or not later:
            return None, False
        return max(self.until, now + (self.until - now) * told.rank / later), True


def forecast(
    state: State,
    *,
    wanted: Collection[str] | None = None,
    enough: Callable[[], bool] = lambda: False,
    plans: int = MOST_PLANS,
    begun: Settled | None = None,
) -> Forecast:
    """Carry out the plan on a virtual clock.

    Args:
        state: nodes and jobs at one instant.
        wanted: the forecast may end when all of these jobs have started and ended; None: it goes on for all jobs.
        enough: whether the time for an answer is over. It is asked after each event.
        plans: how many plans are made at most.
        begun: what ``settled`` found for this state, if that is known.
    """
    state = bare(state)
    begun = begun or settled(state)
    clock = _Clock(state)
    clock.follow(begun)
    made, until, whole = begun.plans, state.now + HORIZON_SECONDS, True
    awaited = set(clock.jobs) if wanted is None else set(wanted)
    while awaited & clock.jobs.keys():
        moment = clock.next_event()
        if moment > state.now + HORIZON_SECONDS:
            break
        if made + LOOKS > plans or enough():
            until, whole = clock.now, False
            break
        together = moment + _TOGETHER_SECONDS + _TOGETHER_SHARE * (moment - state.now)
        found = settled(clock.advance(moment, together))
        clock.follow(found)
        made += found.plans
    return Forecast(clock.starts, clock.ends, until, clock.guessed, begun, made, whole)


class _Clock:
    """The virtual clock, with what each job still has to do."""

    def __init__(self, state: State) -> None:
        self.now = state.now
        self.jobs: dict[str, Job] = {}
        self.starts: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        self._state = state
        self._waited = {job.id for job in state.jobs if not job.held}
        self._per_node = max((node.slots for node in state.nodes), default=1)
        self._speeds: dict[tuple[str, int], float] = {}
        self._left: dict[str, float] = {}
        """Job to the seconds that one worker would need for what it has to do."""
        self._ready: dict[str, float] = {}
        """Job to the time at which its newest resize is over."""
        guessed = set()
        for job in state.jobs:
            speeds, work = speeds_of(job, self._per_node, state.weights)
            if job.steps_left is not None and speeds.alone is not None:
                self._left[job.id] = work.seconds
            else:
                guessed.add(job.id)
                self._left[job.id] = self._guess(job)
        self.guessed = frozenset(guessed)
        self._whole = dict(self._left)
        self._steps = {job.id: job.steps_left for job in state.jobs}

    def follow(self, found: Settled) -> None:
        """Take the state to which plans have come at the present moment."""
        self._state = found.state
        before, self.jobs = self.jobs, {}
        for job in found.state.jobs:
            started = job.id in found.since
            known = before.get(job.id)
            if job.held and (started or (known is not None and known.alloc != job.alloc)):
                self._ready[job.id] = self.now + job.pause
            if started and job.id in self._waited and job.id not in self.starts:
                self.starts[job.id] = self.now
                if job.id in self.guessed:
                    self._left[job.id] = self._guess(job)
            self.jobs[job.id] = self._limited(self._begun(job) if started else job, known)

    def _begun(self, job: Job) -> Job:
        """A job that has just started. Its script will say how many engines it can use; its user asks for so many."""
        if job.engines is None and not job.gang and not job.allowed:
            job = replace(job, engines=job.max)
        return job if job.time_limit is None else replace(job, ends_by=self.now + job.time_limit)

    def _limited(self, job: Job, before: Job | None) -> Job:
        """A job whose time limit stands still while it waits."""
        if job.held or before is None or before.ends_by is None:
            return job
        return replace(job, ends_by=None, time_limit=max(0.0, before.ends_by - self.now))

    def _guess(self, job: Job) -> float:
        """What a job has to do whose work is not known."""
        return max(UNKNOWN_SECONDS, job.attained / max(1, job.held)) * self._speed(job)

    def next_event(self) -> float:
        """When something happens next; infinite: nothing does."""
        return min((self._event(job) for job in self.jobs.values()), default=math.inf)

    def advance(self, moment: float, together: float) -> State:
        """Let time go by until ``moment``, and let everything happen that happens until ``together``.

        Returns:
            The state then.
        """
        jobs, over = [], set()
        for job in self.jobs.values():
            then, end = job, self._end(job)
            if end <= together:
                self.ends[job.id] = end
                over.add(job.id)
            elif job.held:
                then = self._trained(job, moment)
            elif job.not_before is not None and job.not_before <= together:
                then = replace(job, not_before=None)
            if job.cap_until is not None and job.cap_until <= together:
                then = replace(then, cap=None, cap_until=None)
            jobs.append(then)
        self.now = moment
        return without(replace(self._state, now=moment, jobs=tuple(jobs)), over)

    def _event(self, job: Job) -> float:
        moments = [self._end(job)]
        if not job.held and job.not_before is not None and job.not_before > self.now:
            moments.append(job.not_before)
        if job.cap_until is not None and job.cap_until > self.now:
            moments.append(job.cap_until)
        return min(moments)

    def _end(self, job: Job) -> float:
        """When a job ends if it keeps what it has; infinite: it has nothing."""
        if not job.held:
            return math.inf
        end = self._begins(job) + self._left[job.id] / self._speed(job)
        return end if job.ends_by is None else min(end, max(self.now, job.ends_by))

    def _begins(self, job: Job) -> float:
        """When a job that holds slots trains with them."""
        return max(self.now, self._ready.get(job.id, self.now))

    def _trained(self, job: Job, moment: float) -> Job:
        """A job that has trained until ``moment``."""
        seconds = max(0.0, moment - self._begins(job))
        left = self._left[job.id] = max(0.0, self._left[job.id] - seconds * self._speed(job))
        attained = job.attained + (moment - self.now) * job.held
        steps, whole = self._steps[job.id], self._whole[job.id]
        return replace(job, attained=attained, steps_left=steps * left / whole if steps is not None else None)

    def _speed(self, job: Job) -> float:
        """How fast it trains with what it holds, beside one worker."""
        key = job.id, job.held
        if key not in self._speeds:
            speeds, _ = speeds_of(job, self._per_node, self._state.weights)
            known = [size for size in speeds.of if size <= max(1, job.held)]
            self._speeds[key] = max(1e-9, speeds.of[max(known)]) if known else 1.0
        return self._speeds[key]
