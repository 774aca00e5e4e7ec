"""Published policies, to compare with: FIFO, Tiresias and Optimus, each after its description and its authors' rules.

* FIFO: jobs start in the order of submission, on the GPUs that their users have tuned them for.
* Tiresias (NSDI 2019), as the Pollux authors have set it: two queues by attained service, with 16 GPU-hours between
  them; the first queue comes first, jobs are preempted, and a job always has the GPUs that its user has asked for.
* Optimus (EuroSys 2018), as they have set it: each job gets a GPU, then the job whose remaining time falls most gets
  one more, with step times that are known exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from edt_scheduler.simulate.applications import compact
from edt_scheduler.simulate.cluster import Allocation
from edt_scheduler.simulate.training import Split, Training

DEMOTED_AFTER = 16 * 3600
"""GPU-seconds after which Tiresias moves a job to its second queue."""


class Fifo:
    """Jobs start in the order of submission, whole, and keep their GPUs until they end.

    Args:
        skips: whether a job that does not fit lets later ones go first.
    """

    split: Split | None = None

    def __init__(self, *, skips: bool = False) -> None:
        self._skips = skips

    def allocate(
        self, jobs: Mapping[str, Training], nodes: Mapping[int, int], held: Allocation, now: float
    ) -> Allocation:
        given = dict(held)
        free = _free(nodes, given)
        for name, job in jobs.items():
            if name in given:
                continue
            if job.gpus <= sum(free.values()):
                given[name] = _take(free, job.gpus)
            elif not self._skips:
                break
        return given


class Tiresias:
    """Least attained service first, in two queues."""

    split: Split | None = None

    def __init__(self) -> None:
        self._queues: tuple[list[str], list[str]] = ([], [])
        self._runs: dict[str, bool] = {}
        self._looked_at: dict[str, float] = {}
        self._ran: Counter[str] = Counter()

    def allocate(
        self, jobs: Mapping[str, Training], nodes: Mapping[int, int], held: Allocation, now: float
    ) -> Allocation:
        first, second = ([name for name in queue if name in jobs] for queue in self._queues)
        self._queues = first, second
        for name, job in jobs.items():
            if name not in self._runs:
                self._runs[name] = False
                first.append(name)
            if self._runs[name]:
                self._ran[name] += int(now - self._looked_at[name])
                if name in first and self._ran[name] * job.gpus >= DEMOTED_AFTER:
                    first.remove(name)
                    second.append(name)
            self._looked_at[name] = now
        given = dict(held)
        left = sum(nodes.values())
        for name in first + second:
            self._runs[name] = jobs[name].gpus <= left
            if self._runs[name]:
                left -= jobs[name].gpus
            else:
                given.pop(name, None)
        free = _free(nodes, given)
        for name in first + second:
            if self._runs[name] and name not in given:
                given[name] = _take(free, jobs[name].gpus)
        return given


class Optimus:
    """One GPU more for the job whose remaining time it shortens most. It is told the true step times."""

    split: Split | None = None

    def allocate(
        self, jobs: Mapping[str, Training], nodes: Mapping[int, int], held: Allocation, now: float
    ) -> Allocation:
        left = sum(nodes.values())
        numbers: dict[str, int] = {}
        gains: dict[str, float] = {}
        for name, job in jobs.items():
            numbers[name] = int(left > 0)
            left -= numbers[name]
            gains[name] = self._gain(job, 1) if left > 0 and numbers[name] else 0.0
        while left > 0 and max(gains.values()) > 0:
            name = max(gains, key=lambda each: gains[each])
            numbers[name] += 1
            left -= 1
            gains[name] = self._gain(jobs[name], numbers[name])
        given = {name: gpus for name, gpus in held.items() if len(gpus) == numbers[name]}
        free = _free(nodes, given)
        for name in sorted(jobs, key=lambda each: numbers[each]):
            if numbers[name] and name not in given:
                given[name] = _take(free, numbers[name])
        return given

    @staticmethod
    def _gain(job: Training, gpus: int) -> float:
        """Seconds by which one GPU more shortens a job."""
        application = job.application
        if gpus >= application.most_gpus(job.batch):
            return 0.0
        last = application.epochs - 1
        left = 1.0
        if last > job.epoch:
            left = application.iterations(job.batch, last) - application.iterations(job.batch, job.epoch)
        now, then = (
            application.step_seconds(job.batch, compact(number), accumulates=True) for number in (gpus, gpus + 1)
        )
        return (now - then) * left


def _free(nodes: Mapping[int, int], given: Allocation) -> Counter[int]:
    return Counter(nodes) - Counter(node for gpus in given.values() for node in gpus)


def _take(free: Counter[int], number: int) -> tuple[int, ...]:
    """GPUs for a job, always from the node that has most left."""
    taken: list[int] = []
    while len(taken) < number:
        node, there = free.most_common(1)[0]
        some = min(there, number - len(taken))
        taken += [node] * some
        free[node] -= some
    return tuple(taken)
