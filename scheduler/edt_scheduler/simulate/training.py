"""One simulated job: how it trains on the GPUs that it has, and what the scheduler can see of that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edt_scheduler.simulate.applications import Application
from edt_scheduler.simulate.workload import Submission

Split = Callable[["Training", int], tuple[int, int]]
"""Chooses the batch of a training whose batch may change: from its number of GPUs the batch of one pass, and the passes
before the last one."""


class Training:
    """A job of a workload, from its submission to its end.

    Args:
        submission: what its user submits.
        application: what was measured of its application.
        split: chooses its batch; None: its batch is the one that its user has tuned.
        slower: its steps take so many times as long as they were measured: noise.
        estimate: policies are told so many times the work that it has left.
    """

    def __init__(
        self,
        submission: Submission,
        application: Application,
        split: Split | None = None,
        slower: float = 1.0,
        estimate: float = 1.0,
    ) -> None:
        self.name, self.submit, self.gpus, self.batch = (
            submission.name,
            submission.at,
            submission.gpus,
            submission.batch,
        )
        self.application = application
        self.seen: dict[tuple[int, int, int], tuple[float, float]] = {}
        """(nodes, GPUs, batch of one pass) to the seconds of a pass and of its all-reduce, as they were measured."""
        self.gradient: tuple[float, float] | None = None
        """Squared norm and variance of the gradient, as they were measured last."""
        self.now = 0.0
        self.begun: float | None = None
        self.ended: float | None = None
        self.placement: tuple[int, ...] = ()
        self.local = self.passes_before = 0
        self.epoch = 0
        self.progress = 0.0
        """In iterations of the application's smallest batch."""
        self.resizes = 0
        self.held_seconds = self.lost_seconds = 0.0
        """GPU-seconds that it held, and those of them in which it waited for a resize to end."""
        self.useful_seconds = 0.0
        """The seconds in which one GPU alone would have done what it did with those that it held."""
        self.slower, self.estimate = slower, estimate
        self._split = split
        self._pause = 0.0
        self._speed = 0.0

    @property
    def held(self) -> int:
        """How many GPUs it has."""
        return sum(self.placement)

    @property
    def is_adaptive(self) -> bool:
        """Whether its batch may change."""
        return self._split is not None

    def place(self, placement: Sequence[int], pause: float) -> None:
        """Give it these GPUs instead of those that it has.

        Args:
            placement: GPUs on each node; empty: it gets none.
            pause: seconds until it goes on.
        """
        if placement:
            self.resizes += self.begun is not None
            self.begun = self.now if self.begun is None else self.begun
            self._pause = pause
        self.placement = tuple(placement)
        self._choose_batch()

    def roll_back(self, seconds: float) -> None:
        """Take back what it has trained in the last ``seconds``, after the failure of a node."""
        if self.placement and self.ended is None:
            start = self.application.progress[self.epoch]
            self.progress = max(start, self.progress - seconds * self.rate())

    def rate(self) -> float:
        """Progress per second on the GPUs that it has, without pauses."""
        batch = self.held * self.local * (self.passes_before + 1)
        step, sync = self.application.times(self.placement, self.local)
        return self.application.gain(batch, self.epoch) / ((step + (step - sync) * self.passes_before) * self.slower)

    def advance(self, seconds: float) -> None:
        """Let time go by."""
        if not self.placement or self.ended is not None:
            self.now += seconds
            return
        pause = min(self._pause, seconds)
        self._pause -= pause
        if self.resizes:  # the pause before the first step is no resize
            self.lost_seconds += pause * self.held
        self._pass(pause)
        seconds -= pause
        while seconds > 0 and self.ended is None:
            rate = self.rate()
            self._observe()
            end = self.application.progress[self.epoch + 1]
            if self.progress + rate * seconds < end:
                self.progress += rate * seconds
                self.useful_seconds += seconds * self._speed
                self._pass(seconds)
                return
            spent = min(seconds, round((end - self.progress) / rate))  # whole seconds, as Pollux's simulator has them
            self.progress = end
            self.epoch += 1
            self.useful_seconds += spent * self._speed
            self._pass(spent)
            seconds -= spent
            if self.epoch == self.application.epochs:
                self.ended = self.now
            else:
                self._choose_batch()
        self.now += seconds

    def foreseen_end(self, now: float) -> float | None:
        """When it ends if it keeps its GPUs; None: it has none, or it does not end in its present epoch."""
        if not self.placement or self.ended is not None or self.epoch + 1 < self.application.epochs:
            return None
        return now + self._pause + max(1.0, round((self.application.progress[-1] - self.progress) / self.rate()))

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.held_seconds += seconds * self.held

    def _choose_batch(self) -> None:
        if not self.placement:
            self.local = self.passes_before = 0
        elif self._split is None:
            self.local, self.passes_before = self.application.split(self.batch, self.held)
        else:
            local, self.passes_before = self._split(self, self.held)
            self.local = min(local, int(self.application.max_batch / (self.held * (self.passes_before + 1))))
        self._speed = self._beside_one() if self.placement else 0.0

    def _beside_one(self) -> float:
        """How many times as fast it trains as on one GPU with the same global batch."""
        step, sync = self.application.times(self.placement, self.local)
        batch = self.held * self.local * (self.passes_before + 1)
        return self.application.step_seconds(batch, (1,)) / (step + (step - sync) * self.passes_before)

    def _observe(self) -> None:
        step, sync = self.application.times(self.placement, self.local)
        nodes = sum(bool(number) for number in self.placement)
        self.seen.setdefault((nodes, self.held, self.local), (step * self.slower, sync * self.slower))
        self.gradient = self.application.gradient(self.held * self.local * (self.passes_before + 1), self.epoch)


def steps_left(job: Training) -> float:
    """How many steps a job with a fixed batch still has, as a policy is told."""
    application, epoch = job.application, job.epoch
    before = application.iterations(job.batch, epoch - 1) if epoch else 0.0
    after = application.iterations(job.batch, epoch)
    start, end = application.progress[epoch], application.progress[epoch + 1]
    done = before + (job.progress - start) / (end - start) * (after - before)
    return (application.iterations(job.batch, application.epochs - 1) - done) * job.estimate
