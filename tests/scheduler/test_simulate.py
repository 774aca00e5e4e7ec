"""The simulator reproduces published figures, and what stands beside them is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from edt_scheduler.simulate import small, traces
from edt_scheduler.simulate.adaptive import Adaptive
from edt_scheduler.simulate.applications import Application
from edt_scheduler.simulate.bounds import lower_bound
from edt_scheduler.simulate.cluster import Allocation, Policy, Rules, Run, run, trainings
from edt_scheduler.simulate.goodput import StepModel, best_batch
from edt_scheduler.simulate.metrics import measure
from edt_scheduler.simulate.platform import Platform
from edt_scheduler.simulate.policies import POLICIES
from edt_scheduler.simulate.rivals import AfsL, Fifo, Optimus, Tiresias
from edt_scheduler.simulate.training import Split, Training

FIXED = [name for name in POLICIES if "adaptive" not in name]
SMALL = Rules(nodes=small.NODES)


@pytest.fixture
def pollux() -> Path:
    folder = traces.folder()
    if not (folder / "pollux").is_dir():
        pytest.skip(f"there are no traces in {folder}; {traces.VARIABLE} names another folder")
    return folder


class Same:
    """Gives each job the same number of GPUs, on as few nodes as possible."""

    split: Split | None = None

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus

    def allocate(
        self, jobs: Mapping[str, Training], nodes: Mapping[int, int], held: Allocation, now: float
    ) -> Allocation:
        return {name: tuple(gpu // SMALL.gpus for gpu in range(self._gpus)) for name in jobs}


def small_run(policy: Policy, rules: Rules = SMALL) -> Run:
    return run(small.small_workload(), traces.FORMULAS, policy, rules)


def mean_of(folder: Path, workload: str, policy: Policy) -> float:
    found = traces.find(workload, folder)
    return measure(run(found.submissions, found.applications, policy)).mean


def test_tiresias_on_workload_6_takes_what_is_published_to_the_last_digit(pollux: Path) -> None:
    assert round(mean_of(pollux, "1.0/6", Tiresias()), 2) == 3469.69


def test_optimus_takes_what_is_published_on_a_workload(pollux: Path) -> None:
    assert round(mean_of(pollux, "0.5/1", Optimus()), 2) == traces.published(pollux)["optimus"]["0.5"]["workload-1"]


@pytest.mark.extended
@pytest.mark.parametrize(("name", "policy"), [("tiresias", Tiresias), ("optimus", Optimus)])
@pytest.mark.parametrize("load", ["0.5", "1.0"])
def test_all_published_means_are_reproduced(pollux: Path, name: str, policy: Callable[[], Policy], load: str) -> None:
    published = traces.published(pollux)[name][load]
    means = {f"workload-{each}": mean_of(pollux, f"{load}/{each}", policy()) for each in range(1, 9)}
    assert {workload: round(mean, 2) for workload, mean in means.items()} == published
    if (name, load) == ("optimus", "1.0"):
        assert round(sum(means.values()) / 8, 2) == 5681.93


@pytest.mark.extended
def test_afs_comes_near_the_figure_of_another_implementation(pollux: Path) -> None:
    mean = sum(mean_of(pollux, f"1.0/{each}", AfsL()) for each in range(1, 9)) / 8
    assert mean == pytest.approx(3646, rel=0.06)


@pytest.mark.parametrize("name", POLICIES)
def test_a_run_comes_out_the_same_each_time(name: str) -> None:
    rules = Rules(nodes=small.NODES, noise=0.1, wrong=2.0, failures_per_hour=0.01)
    one, two = (small_run(POLICIES[name][1](rules), rules) for _ in range(2))
    assert one.history == two.history
    assert [job.ended for job in one.jobs] == [job.ended for job in two.jobs]


def test_noise_wrong_estimates_and_failures_each_change_a_run() -> None:
    plain = measure(small_run(Platform())).mean
    for rules in (
        Rules(nodes=small.NODES, noise=0.1),
        Rules(nodes=small.NODES, wrong=2.0),
        Rules(nodes=small.NODES, failures_per_hour=0.2),
        Rules(nodes=small.NODES, pause=120.0),
    ):
        assert measure(small_run(Platform(rules.pause), rules)).mean != plain


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_gives_out_a_gpu_twice_or_to_a_job_that_is_not_there(name: str) -> None:
    found = small_run(POLICIES[name][1](SMALL))
    by_name = {job.name: job for job in found.jobs}
    assert len(found.history) > 10
    for at, given in found.history:
        used = Counter(node for gpus in given.values() for node in gpus)
        assert all(number <= SMALL.gpus for number in used.values())
        for job in map(by_name.__getitem__, given):
            assert job.submit <= at <= (job.ended or 0)  # the rest of its last epoch may be rounded to 0 s


@pytest.mark.parametrize("name", ["fifo", "fifo-skip", "tiresias"])
def test_rigid_policies_give_each_job_what_its_user_has_asked_for(name: str) -> None:
    found = small_run(POLICIES[name][1](SMALL))
    wanted = {job.name: job.gpus for job in found.jobs}
    assert all(len(gpus) == wanted[job] for _, given in found.history for job, gpus in given.items())


def test_fifo_starts_jobs_in_the_order_of_submission() -> None:
    begun = [job.begun or 0.0 for job in small_run(Fifo()).jobs]
    assert begun == sorted(begun)
    skipping = [job.begun or 0.0 for job in small_run(Fifo(skips=True)).jobs]
    assert skipping != sorted(skipping)


def test_what_jobs_held_is_what_the_history_says() -> None:
    found = small_run(Optimus())
    moments = [*found.history, (max(job.ended or 0.0 for job in found.jobs), {})]
    for job in found.jobs:
        end = job.ended or 0.0
        held = sum(
            len(given.get(job.name, ())) * max(0.0, min(until, end) - at)
            for (at, given), (until, _) in pairwise(moments)
        )
        assert job.held_seconds == pytest.approx(held)
        assert job.lost_seconds <= job.held_seconds
        assert 0 < job.useful_seconds <= job.held_seconds + 1e-6


@pytest.mark.parametrize(
    "rules",
    [SMALL, Rules(nodes=small.NODES, noise=0.1, at_once=True, pause=0.5), Rules(nodes=2, gpus=8, round_seconds=300.0)],
    ids=["as it is", "noise, at once", "other nodes"],
)
def test_nobody_beats_the_bound(rules: Rules) -> None:
    bound = lower_bound(trainings(small.small_workload(), traces.FORMULAS, rules), rules, steps=30)
    means = {name: measure(small_run(POLICIES[name][1](rules), rules)).mean for name in FIXED}
    assert 0.45 * min(means.values()) < bound <= min(means.values())


def test_the_bound_of_one_job_is_its_time_on_the_best_number_of_gpus() -> None:
    alone = [each for each in small.small_workload() if each.application == "speech"][:1]
    best = min(
        measure(run(alone, traces.FORMULAS, Same(gpus), SMALL)).mean
        for gpus in range(1, min(16, traces.FORMULAS("speech").most_gpus(alone[0].batch)) + 1)
    )
    bound = lower_bound(trainings(alone, traces.FORMULAS, SMALL), SMALL, steps=60)
    assert 0.98 * best < bound <= best


@pytest.mark.extended
def test_nobody_beats_the_bound_on_recorded_workloads(pollux: Path) -> None:
    for workload in ("0.5/4", "1.0/6"):
        found = traces.find(workload, pollux)
        bound = lower_bound(trainings(found.submissions, found.applications, Rules()), Rules())
        for name in FIXED:
            assert bound <= mean_of(pollux, workload, POLICIES[name][1](Rules())), name


def test_decisions_at_once_start_a_job_when_it_is_submitted() -> None:
    rules = Rules(nodes=16, at_once=True)
    assert all(job.begun == job.submit for job in small_run(Platform(), rules).jobs)
    waiting = [(job.begun or 0.0) - job.submit for job in small_run(Platform(), Rules(nodes=16)).jobs]
    assert 0 < max(waiting) <= 60


def test_batches_that_may_change_get_larger_with_the_gpus_and_with_the_noise_of_the_gradient() -> None:
    application: Application = small.Formula("vision")
    seen = {
        (nodes, gpus, local): application.times((gpus // nodes,) * nodes, local)
        for nodes, gpus in ((1, 1), (1, 2), (1, 4), (2, 8))
        for local in (32, 64)
    }
    model = StepModel.fit(seen)
    for (nodes, gpus, local), (step, _) in seen.items():
        assert nodes == -(-gpus // 4)
        assert model.seconds(gpus, local, 0) == pytest.approx(step, rel=0.15)
    few, many = (best_batch(application, model, (1.0, 5.0), gpus) for gpus in (2, 8))
    noisy = best_batch(application, model, (1.0, 50.0), 2)
    assert few is not None
    assert many is not None
    assert noisy is not None
    assert 2 * few[1] * (few[2] + 1) < 8 * many[1] * (many[2] + 1)
    assert 2 * few[1] * (few[2] + 1) < 2 * noisy[1] * (noisy[2] + 1)
    assert best_batch(application, model, (1.0, 5.0), 1000) is None


def test_batches_that_change_are_worth_it() -> None:
    assert measure(small_run(Adaptive())).mean < 0.95 * measure(small_run(Platform())).mean
