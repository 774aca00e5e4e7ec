"""Published policies, to compare with: FIFO, Tiresias, Optimus and AFS-L, each after its description.

* FIFO: jobs start in the order of submission, on the GPUs that their users have tuned them for.
* Tiresias (NSDI 2019), as the Pollux authors have set it: two queues by attained service, with 16 GPU-hours between
  them; the first queue comes first, jobs are preempted, and a job always has the GPUs that its user has asked for.
* Optimus (EuroSys 2018), as they have set it: each job gets a GPU, then the job whose remaining time falls most gets
  one more, with step times that are known exactly.
* AFS-L (NSDI 2021): one GPU after the other goes to the job that comes first when each two are compared. Of two jobs
  the shorter comes first, unless a GPU more makes the longer one faster by a larger part. It is told the true step
  times and how much work is left, and goes from one size to the next that is faster, since step times are not concave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from edt_scheduler.simulate.applications import compact
from edt_scheduler.simulate.cluster import Allocation
from edt_scheduler.simulate.training import Split, Training, steps_left

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

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, int, int], float] = {}

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

    def _gain(self, job: Training, gpus: int) -> float:
        """Seconds by which one GPU more shortens a job."""
        application = job.application
        if gpus >= application.most_gpus(job.batch):
            return 0.0
        last = application.epochs - 1
        left = 1.0
        if last > job.epoch:
            left = application.iterations(job.batch, last) - application.iterations(job.batch, job.epoch)
        return (self._step(job, gpus) - self._step(job, gpus + 1)) * left * job.estimate

    def _step(self, job: Training, gpus: int) -> float:
        """Seconds of a step on so many GPUs, on as few nodes as possible."""
        key = job.application.name, job.batch, gpus
        if key not in self._seconds:
            self._seconds[key] = job.application.step_seconds(job.batch, compact(gpus), accumulates=True)
        return self._seconds[key]


class AfsL:
    """One GPU more for the job that comes first by AFS's comparison of two jobs."""

    split: Split | None = None

    def __init__(self) -> None:
        self._rates: dict[tuple[str, int, int], float] = {}

    def allocate(
        self, jobs: Mapping[str, Training], nodes: Mapping[int, int], held: Allocation, now: float
    ) -> Allocation:
        left = sum(nodes.values())
        numbers = dict.fromkeys(jobs, 0)
        works = {name: steps_left(job) for name, job in jobs.items()}
        starting = sorted(jobs, key=lambda name: works[name] / self._rate(jobs[name], 1))
        for name in starting[:left]:
            numbers[name] = 1
        left -= min(left, len(starting))
        while left > 0:
            first: tuple[str, int] | None = None
            for name, job in jobs.items():
                size = self._next(job, numbers[name], left)
                if size and (first is None or self._precedes(jobs, works, numbers, (name, size), first)):
                    first = name, size
            if first is None:
                break
            left -= first[1] - numbers[first[0]]
            numbers[first[0]] = first[1]
        given = {name: gpus for name, gpus in held.items() if len(gpus) == numbers[name]}
        free = _free(nodes, given)
        for name in sorted(jobs, key=lambda each: -numbers[each]):
            if numbers[name] and name not in given:
                given[name] = _take(free, numbers[name])
        return given

    def _precedes(
        self,
        jobs: Mapping[str, Training],
        works: Mapping[str, float],
        numbers: Mapping[str, int],
        one: tuple[str, int],
        other: tuple[str, int],
    ) -> bool:
        """Whether the next size of ``one`` comes before that of ``other``."""

        def length(name: str) -> float:
            return works[name] / self._rate(jobs[name], numbers[name])

        (short, small), (long, large) = sorted((one, other), key=lambda each: length(each[0]))
        now, then = self._rate(jobs[short], numbers[short]), self._rate(jobs[short], small)
        gain = (then - now) / now / (small - numbers[short])
        now, then = self._rate(jobs[long], numbers[long]), self._rate(jobs[long], large)
        first = long if (then - now) / then / (large - numbers[long]) > gain else short
        return first == one[0]

    def _next(self, job: Training, number: int, left: int) -> int:
        """The next size at which a job is faster; 0: there is none that fits."""
        if not number:
            return 0
        most = min(job.application.most_gpus(job.batch), number + left)
        now = self._rate(job, number)
        return next((size for size in range(number + 1, most + 1) if self._rate(job, size) > now), 0)

    def _rate(self, job: Training, gpus: int) -> float:
        """Steps per second on so many GPUs, on as few nodes as possible."""
        key = job.application.name, job.batch, gpus
        if key not in self._rates:
            self._rates[key] = 1 / job.application.step_seconds(job.batch, compact(gpus))
        return self._rates[key] / job.slower


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
