"""What no policy can beat: a lower bound of the mean completion time of a workload whose future is known.

Three relaxations, each of which every schedule obeys; the largest of their values counts.

* Alone: each job has the whole cluster, at its best size, from its submission on.
* One machine: the GPUs are one machine as fast as all of them, and a job is as long as its work at its most efficient
  size. Shortest remaining time first is optimal there (Schrage 1968).
* Both: the mean time at which a job's work is done is at least that of the shortest job first on the one machine, and a
  job that is never faster than alone ends at least half of its time alone after that (the mean busy time relaxation of
  Goemans and others, 2002).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edt_scheduler.simulate.applications import Application, compact
from edt_scheduler.simulate.workload import Submission


@dataclass(frozen=True)
class _Needs:
    at: float
    alone: float
    """Seconds with the number of GPUs that suits the job best."""
    work: float
    """GPU-seconds with the most efficient number of GPUs."""


def lower_bound(
    submissions: Sequence[Submission], applications: Callable[[str], Application], gpus: int, pause: float
) -> float:
    """Seconds from submission to end, in the mean, that no policy can beat with batches that do not change.

    Args:
        submissions: the workload.
        applications: an application by its name.
        gpus: all GPUs of the cluster.
        pause: seconds before the first step of each job.
    """
    needs = [_needs(each, applications(each.application), gpus, pause) for each in submissions]
    alone = sum(each.alone for each in needs)
    machine = sum(_ends(needs, gpus, remaining=True)) - sum(each.at for each in needs)
    both = sum(_means(needs, gpus)) - sum(each.at for each in needs) + alone / 2
    return max(alone, machine, both) / len(needs)


def _needs(submission: Submission, application: Application, gpus: int, pause: float) -> _Needs:
    batch = submission.batch
    iterations = application.iterations(batch, application.epochs - 1)
    most = min(gpus, application.most_gpus(batch))
    seconds = {number: iterations * _fastest(application, batch, number) for number in range(1, most + 1)}
    work = min(number * each for number, each in seconds.items())
    return _Needs(submission.at, pause + min(seconds.values()), work)


def _fastest(application: Application, batch: int, gpus: int) -> float:
    """Seconds of an iteration on so many GPUs, on few nodes or spread over as many as were measured."""
    placements = {compact(gpus)} | {compact(gpus, each) for each in (1, 2, 3)}
    return min(application.step_seconds(batch, each) for each in placements if len(each) <= 16)


def _ends(needs: Sequence[_Needs], gpus: int, *, remaining: bool) -> list[float]:
    """When each job ends on the one machine, with shortest remaining time first."""
    return [end for end, _ in _one_machine(needs, gpus, remaining=remaining)]


def _means(needs: Sequence[_Needs], gpus: int) -> list[float]:
    """The mean time at which each job's work is done on the one machine, with the shortest job first."""
    return [mean for _, mean in _one_machine(needs, gpus, remaining=False)]


def _one_machine(needs: Sequence[_Needs], gpus: int, *, remaining: bool) -> list[tuple[float, float]]:
    """End and mean busy time of each job, preemptive, by remaining work or by the work of the whole job."""
    order = sorted(range(len(needs)), key=lambda job: needs[job].at)
    left = [each.work / gpus for each in needs]
    ends, means = [0.0] * len(needs), [0.0] * len(needs)
    queue: list[tuple[float, int]] = []
    now, coming = 0.0, 0
    while queue or coming < len(order):
        if not queue:
            now = max(now, needs[order[coming]].at)
        while coming < len(order) and needs[order[coming]].at <= now:
            heapq.heappush(queue, (left[order[coming]], order[coming]))
            coming += 1
        key, job = heapq.heappop(queue)
        until = now + left[job]
        if coming < len(order):
            until = min(until, needs[order[coming]].at)
        done = until - now
        means[job] += (now + until) / 2 * done * gpus / needs[job].work
        left[job] -= done
        now = until
        if left[job] > 1e-9:
            heapq.heappush(queue, (left[job] if remaining else key, job))
        else:
            ends[job] = now
    return list(zip(ends, means, strict=True))
