"""Permutation and schedule: what a step is, whoever works on it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_runner.schedule import Schedule, StepKind
from edt_runner.seeds import Permutation, key_of

schedules = st.builds(
    Schedule,
    train_samples=st.integers(1, 400),
    test_samples=st.integers(0, 60),
    micro_batches=st.integers(1, 9),
    batch_size=st.integers(1, 9),
    epochs=st.integers(1, 4),
    validation_freq=st.integers(0, 3),
)


@given(st.integers(1, 5000), st.integers(0, 2**64 - 1))
@settings(max_examples=60)
def test_a_permutation_is_a_bijection(size: int, key: int) -> None:
    assert sorted(Permutation(size, key)(np.arange(size)).tolist()) == list(range(size))


@given(st.integers(2, 10**9), st.integers(0, 2**64 - 1), st.data())
@settings(max_examples=60)
def test_a_position_can_be_looked_up_by_itself(size: int, key: int, data: st.DataObject) -> None:
    order = Permutation(size, key)
    some = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    assert [int(order([position])[0]) for position in some] == order(some).tolist()


def test_the_order_never_changes_between_releases() -> None:
    """Recovery checkpoints hold a position and a seed: the order is part of their format."""
    assert Permutation(20, key_of(0, 1))(np.arange(8)).tolist() == [12, 4, 16, 7, 10, 1, 19, 0]


def test_epochs_have_orders_of_their_own() -> None:
    first, second = (Permutation(1000, key_of(3, epoch))(np.arange(1000)) for epoch in (0, 1))
    assert not np.array_equal(first, second)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


def test_a_position_outside_is_refused() -> None:
    with pytest.raises(IndexError):
        Permutation(5, 1)([5])


@given(schedules)
@settings(max_examples=150)
def test_every_sample_is_trained_on_once_an_epoch(schedule: Schedule) -> None:
    for epoch in range(schedule.epochs):
        seen: list[int] = []
        for step in map(schedule.at, range(schedule.length)):
            if step.kind is StepKind.TRAIN and step.epoch == epoch:
                for worker in range(schedule.micro_batches):
                    seen.extend(schedule.samples(5, step, worker).tolist())
        assert sorted(seen) == list(range(schedule.train_samples))


@given(schedules)
@settings(max_examples=150)
def test_every_test_sample_is_validated_once(schedule: Schedule) -> None:
    steps = [step for step in map(schedule.at, range(schedule.length)) if step.kind is StepKind.VALIDATE]
    validated = [epoch for epoch in range(schedule.epochs) if any(step.epoch == epoch for step in steps)]
    freq = schedule.validation_freq
    expected = [e for e in range(schedule.epochs) if schedule.test_samples and freq and (e + 1) % freq == 0]
    assert validated == expected
    for epoch in validated:
        seen = [
            int(index)
            for step in steps
            if step.epoch == epoch
            for worker in range(schedule.micro_batches)
            for index in schedule.samples(5, step, worker)
        ]
        assert seen == list(range(schedule.test_samples))


@given(schedules)
@settings(max_examples=150)
def test_no_micro_batch_is_larger_than_the_batch_size(schedule: Schedule) -> None:
    for index in range(schedule.steps_per_epoch):
        assert max(schedule.step_sizes(index)) <= schedule.batch_size


@given(schedules.filter(lambda s: s.batch_size > 2 and s.steps_per_epoch > 1))
@settings(max_examples=150)
def test_no_micro_batch_has_a_single_sample_where_that_can_be_avoided(schedule: Schedule) -> None:
    for index in range(schedule.steps_per_epoch):
        assert 1 not in schedule.step_sizes(index)


@given(schedules)
@settings(max_examples=100)
def test_ticks_count_up_and_the_last_of_an_epoch_says_so(schedule: Schedule) -> None:
    steps = [schedule.at(step) for step in range(schedule.length)]
    assert sum(step.ends_epoch for step in steps) == schedule.epochs
    assert sum(step.kind is StepKind.TRAIN for step in steps) == schedule.steps
    assert [schedule.steps_before(t) for t in range(schedule.length + 1)] == [
        *(t.training_steps_before for t in steps),
        schedule.steps,
    ]
