"""Trainings under random schedules: nobody waits for ever, nothing is lost, the bits stay. Few in the first tier, where
``runners/test_random_memberships`` walks thousands without a training; a hundred in the second."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from edt_contract.reports import ReportKind
from edt_demo import sample_record as record
from support.training import Both, Elastic, Later, cases, counted
from support.waiting import until

Attempt = Callable[..., Elastic]
_CHANGES = 4


def wander(training: Elastic, chance: random.Random, workers: int) -> None:
    """Random wishes, some of them overtaken by the next before they are fulfilled."""
    engines, newest = {1}, 1
    training.settle(engines)
    for _ in range(_CHANGES):
        engines = set(chance.sample(sorted(engines), chance.randint(1, len(engines))))
        for _ in range(chance.randint(0, workers - len(engines))):
            newest += 1
            engines.add(newest)
        if chance.random() < 0.3:
            training.hold(engines)  # a leave or a join on the way
            training.gate.allow(training.gate.allowed + chance.randint(0, 3))
        else:
            training.settle(engines)
    training.settle(engines)


@cases("seed", [Both(0), Both(1), (2,), (3,), *map(Later, range(4, 50))])
def test_a_random_schedule_ends_with_the_undisturbed_bits(
    attempt: Attempt, undisturbed: Callable[..., str], seed: int
) -> None:
    chance = random.Random(seed)
    workers = chance.choice([4, 6])
    arguments = ("conv", "--workers", workers, "--samples", 149, "--batch", 2, "--epochs", 3)
    with attempt(*arguments) as training:
        wander(training, chance, workers)
        assert training.finish()["digest"] == undisturbed(*arguments)


@cases("seed", [Both(100), Both(101), (102,), (103,), *map(Later, range(104, 150))])
def test_every_sample_counts_exactly_once_an_epoch(attempt: Attempt, seed: int) -> None:
    chance = random.Random(seed)
    workers = chance.choice([4, 6])
    samples, epochs = chance.randint(150, 260), 3
    with attempt("counting", "--workers", workers, "--samples", samples, "--epochs", epochs) as training:
        wander(training, chance, workers)
        assert training.finish()["kind"] == "finished"
        weights = counted(training)
    expected = [0.0] * samples
    for entry in training_steps(training.sample_record):
        for sample in entry[1]:
            expected[sample] += 1 / entry[0]
    assert weights == pytest.approx(expected, abs=1e-9)
    for audit in record.audit(record.read(training.sample_record), samples, epochs):
        assert (audit.lost, audit.repeated) == ((), ())


def training_steps(folder: Path) -> list[tuple[int, list[int]]]:
    """(samples of the step, their ids), by what the schedule says, not by what was recorded."""

    from edt_runner.schedule import Schedule, StepKind

    entries = record.read(folder)
    samples = max(sample for entry in entries for sample in entry.samples) + 1
    epochs = max(entry.epoch for entry in entries) + 1
    workers = max(entry.micro_batch for entry in entries) + 1
    schedule = Schedule(samples, 5, workers, 2, epochs)
    steps = []
    for step in map(schedule.at, range(schedule.length)):
        if step.kind is StepKind.TRAIN:
            ids = [int(i) for worker in range(workers) for i in schedule.samples(7, step, worker)]
            steps.append((len(ids), ids))
    return steps


def test_two_changes_that_overtake_each_other_end_where_the_last_wish_says(attempt: Attempt) -> None:
    """1 engine; 2 and 3 are wished, then 2 is taken back before it can have come."""
    with attempt("conv", "--samples", 149, "--epochs", 3) as training:
        training.settle([1])
        training.hold([1, 2, 3])
        until(lambda: training.happened(ReportKind.ENGINE_STARTED, allocation=2), 60)
        training.settle([1, 3])
        assert training.finish()["kind"] == "finished"
        gone = {body["allocation"]: body["kind"] for body in training.kinds(ReportKind.ENGINE_GONE)}
    assert gone[2] == "left"
