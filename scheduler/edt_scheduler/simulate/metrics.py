"""What a run comes to, in numbers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from edt_scheduler.simulate.applications import compact
from edt_scheduler.simulate.cluster import Run
from edt_scheduler.simulate.training import Training


@dataclass(frozen=True)
class Metrics:
    """The figures of one run. Seconds, unless their name says otherwise."""

    jobs: int
    mean: float
    """Mean time from submission to end."""
    median: float
    p99: float
    makespan: float
    """The end of the last job."""
    queued: float
    """Mean time from submission to the first GPU."""
    resizes: float
    """Resizes of a job, in the mean."""
    lost: float
    """The share of all GPU-seconds that jobs held in which they waited for a resize to end."""
    gpu_hours: float
    """GPU-hours that jobs held."""
    used: float
    """The share of the cluster's GPU-seconds that jobs held, until the last one ended."""
    useful: float
    """The share of the GPU-seconds that jobs held which they would have needed on one GPU alone: less than 1 by pauses
    and by what more GPUs cost."""
    unfairness: float
    """The worst finish-time ratio: the time from submission to end beside that on a fair part of the cluster, which is
    all its GPUs by the mean number of jobs that were there in that time."""
    unfair: float
    """The share of jobs whose finish-time ratio is above 1."""
    decision_mean: float
    decision_max: float


def measure(run: Run) -> Metrics:
    """The figures of a run that has ended."""
    jobs = run.jobs
    times = sorted(_ended(job) - job.submit for job in jobs)
    ratios = finish_time_ratios(run)
    held = sum(job.held_seconds for job in jobs)
    makespan = max(_ended(job) for job in jobs)
    decisions = run.decision_seconds or [0.0]
    return Metrics(
        jobs=len(jobs),
        mean=statistics.fmean(times),
        median=statistics.median(times),
        p99=times[min(len(times) - 1, int(0.99 * len(times)))],
        makespan=makespan,
        queued=statistics.fmean((job.begun or 0.0) - job.submit for job in jobs),
        resizes=statistics.fmean(job.resizes for job in jobs),
        lost=sum(job.lost_seconds for job in jobs) / held,
        gpu_hours=held / 3600,
        used=held / (run.rules.nodes * run.rules.gpus * makespan),
        useful=sum(job.useful_seconds for job in jobs) / held,
        unfairness=max(ratios),
        unfair=sum(ratio > 1 for ratio in ratios) / len(ratios),
        decision_mean=statistics.fmean(decisions),
        decision_max=max(decisions),
    )


def finish_time_ratios(run: Run) -> list[float]:
    """The finish-time ratio of each job (Themis, NSDI 2020), with the pause of one start in the denominator."""
    return [_ratio(job, run.jobs, run) for job in run.jobs]


def _ratio(job: Training, others: Sequence[Training], run: Run) -> float:
    lived = _ended(job) - job.submit
    together = sum(max(0.0, min(_ended(job), _ended(other)) - max(job.submit, other.submit)) for other in others)
    all_gpus = run.rules.nodes * run.rules.gpus
    fair = max(1, min(int(all_gpus * lived / together), job.application.most_gpus(job.batch), all_gpus))
    iterations = job.application.iterations(job.batch, job.application.epochs - 1)
    alone = iterations * job.application.step_seconds(job.batch, compact(fair, run.rules.gpus)) * job.slower
    return lived / (alone + run.rules.pause)


def _ended(job: Training) -> float:
    if job.ended is None:
        raise ValueError(f"{job.name} has not ended")
    return job.ended
