"""Runs all jobs of a workload against a policy, on a virtual clock."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from edt_scheduler.simulate.applications import GPUS_PER_NODE, Application
from edt_scheduler.simulate.training import Split, Training
from edt_scheduler.simulate.workload import BadWorkload, Submission

_MOST_SECONDS = 60 * 86400.0
"""A run that takes longer is taken for one that never ends."""
Allocation = Mapping[str, Sequence[int]]
"""Job to the node of each of its GPUs, those of one node together."""


class Policy(Protocol):
    """Decides which job has which GPUs."""

    split: Split | None
    """Chooses the batches of jobs, where they may change."""

    def allocate(
        self, jobs: Mapping[str, Training], nodes: Mapping[int, int], held: Allocation, now: float
    ) -> Allocation:
        """Which GPUs each job has from now on. A job that is left out has none.

        Args:
            jobs: those that were submitted and have not ended, in the order of submission.
            nodes: node to its GPUs.
            held: the allocation until now, without jobs that have ended.
            now: seconds from the start of the workload.
        """
        ...


@dataclass(frozen=True)
class Rules:
    """How the cluster and its clock behave. The defaults are the rules of Pollux's simulator."""

    nodes: int = 16
    gpus: int = GPUS_PER_NODE
    """GPUs of a node."""
    round_seconds: float = 60.0
    """A decision is made once in so many seconds."""
    at_once: bool = False
    """Whether a decision is made at each submission and each end, too."""
    pause: float = 30.0
    """Seconds for which a job stands still after each change of its GPUs."""
    noise: float = 0.0
    """The standard deviation of the factor by which the steps of a job differ from the measured ones."""
    wrong: float = 1.0
    """What policies are told of a job's work is wrong by a factor between 1 / ``wrong`` and ``wrong``."""
    failures_per_hour: float = 0.0
    """The part of the nodes that fail in an hour. The jobs of a failed node lose what they have trained since their
    last checkpoint, and the node is back at the next decision."""
    checkpoint_seconds: float = 600.0
    """How far a job is thrown back at most by a failure."""
    seed: int = 0


@dataclass
class Run:
    """What has come of one workload under one policy."""

    jobs: Sequence[Training]
    rules: Rules
    decision_seconds: list[float] = field(default_factory=list)
    history: list[tuple[float, Allocation]] = field(default_factory=list)
    """The allocation after each decision that has changed it."""


def trainings(
    submissions: Sequence[Submission],
    applications: Callable[[str], Application],
    rules: Rules,
    split: Split | None = None,
) -> list[Training]:
    """The jobs of a workload, before they begin. The same rules give each job the same noise and the same estimate.

    Args:
        submissions: who submits what and when.
        applications: an application by its name.
        rules: how cluster and clock behave.
        split: chooses the batches, where they may change.
    """
    chance, guess = random.Random(rules.seed), random.Random(rules.seed + 1)  # noqa: S311 (a simulation that repeats)
    return [
        Training(
            each,
            application,
            None if application.is_rigid else split,
            slower=max(0.5, chance.gauss(1.0, rules.noise)),
            estimate=rules.wrong ** guess.uniform(-1.0, 1.0),
        )
        for each in submissions
        for application in [applications(each.application)]
    ]


def run(
    submissions: Sequence[Submission],
    applications: Callable[[str], Application],
    policy: Policy,
    rules: Rules | None = None,
    progress: Callable[[float, int], None] | None = None,
) -> Run:
    """Train all jobs of a workload to their end.

    Args:
        submissions: who submits what and when.
        applications: an application by its name.
        policy: decides on the GPUs. It is used up by one run.
        rules: how cluster and clock behave.
        progress: is told the virtual time, in seconds, and how many jobs have ended, after each decision.

    Raises:
        ValueError: if the policy gives out more GPUs of a node than it has.
        BadWorkload: if nothing was measured of where the policy has put a job, or the jobs never end.
    """
    rules = rules or Rules()
    chance = random.Random(rules.seed + 2)  # noqa: S311
    jobs = trainings(submissions, applications, rules, policy.split)
    nodes = dict.fromkeys(range(rules.nodes), rules.gpus)
    found = Run(jobs, rules)
    held: Allocation = {}
    now = 0.0
    while any(job.ended is None for job in jobs):
        step = _next_event(jobs, now, rules) - now
        for job in jobs:
            job.advance(step)
        now += step
        held = _without_failed(jobs, nodes, held, step, rules, chance)
        live = {job.name: job for job in jobs if job.submit <= now and job.ended is None}
        held = {name: gpus for name, gpus in held.items() if name in live}
        if not live:
            continue
        begun = time.perf_counter()
        given = policy.allocate(live, nodes, held, now)
        found.decision_seconds.append(time.perf_counter() - begun)
        used = Counter(node for gpus in given.values() for node in gpus)
        if any(number > nodes[node] for node, number in used.items()):
            raise ValueError(f"at {now:.0f} s more GPUs are given out than there are: {used}")
        if not given and all(job.submit <= now for job in jobs):
            waits = next(iter(live.values()))
            raise BadWorkload(
                f"{waits.name} wants {waits.gpus} GPUs and never starts: the cluster has {sum(nodes.values())}"
            )
        if now > _MOST_SECONDS:
            raise BadWorkload(f"after {now / 86400:.0f} simulated days {len(live)} jobs have not ended")
        for name, job in live.items():
            if list(given.get(name, ())) != list(held.get(name, ())):
                job.place(tuple(Counter(given.get(name, ())).values()), rules.pause)
        if given != held:
            found.history.append((now, {name: tuple(gpus) for name, gpus in given.items()}))
        held = given
        if progress is not None:
            progress(now, sum(job.ended is not None for job in jobs))
    return found


def _next_event(jobs: Sequence[Training], now: float, rules: Rules) -> float:
    """When the next decision is due."""
    tick = (now // rules.round_seconds + 1) * rules.round_seconds
    if not rules.at_once:
        return tick
    moments: list[float] = [job.submit for job in jobs if job.submit > now]
    moments += [end for job in jobs if (end := job.foreseen_end(now)) is not None and end > now]
    return min([tick, *moments])


def _without_failed(
    jobs: Sequence[Training],
    nodes: Mapping[int, int],
    held: Allocation,
    seconds: float,
    rules: Rules,
    chance: random.Random,
) -> Allocation:
    """The allocation without the jobs whose node has failed in the last ``seconds``."""
    if not rules.failures_per_hour:
        return held
    failed = {node for node in nodes if chance.random() < rules.failures_per_hour * seconds / 3600}
    for job in jobs:
        if failed & set(held.get(job.name, ())):
            job.roll_back(chance.uniform(0, rules.checkpoint_seconds))
            job.place((), 0.0)
    return {name: gpus for name, gpus in held.items() if not failed & set(gpus)}
