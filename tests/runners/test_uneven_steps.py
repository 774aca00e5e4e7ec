"""Steps of samples that are no whole micro-batches, and epochs in the data set's own order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edt_runner.schedule import Schedule


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    step = draw(st.integers(1, 60))
    workers = draw(st.integers(1, step))
    return Schedule(
        train_samples=draw(st.integers(1, 300)),
        test_samples=0,
        micro_batches=workers,
        batch_size=-(-step // workers),
        epochs=2,
        step_samples=step,
        shuffled=draw(st.booleans()),
    )


@given(schedules(), st.integers(0, 2**31))
def test_every_sample_comes_once_an_epoch(schedule: Schedule, seed: int) -> None:
    for epoch in range(schedule.epochs):
        first = epoch * schedule.steps_per_epoch
        steps = [schedule.at(step) for step in range(first, first + schedule.steps_per_epoch)]
        found = [schedule.samples(seed, step, w) for step in steps for w in range(schedule.micro_batches)]
        order = np.concatenate(found).tolist()
        assert sorted(order) == list(range(schedule.train_samples))
        assert schedule.shuffled or order == sorted(order)


@given(schedules())
def test_no_micro_batch_is_above_the_size_and_whole_steps_are_even(schedule: Schedule) -> None:
    steps = [schedule.step_sizes(index) for index in range(schedule.steps_per_epoch)]
    assert all(max(sizes) <= schedule.batch_size for sizes in steps)
    whole = [sizes for sizes in steps if sum(sizes) == schedule.step_samples]
    assert all(max(sizes) - min(sizes) <= 1 for sizes in whole)
    assert len(whole) >= len(steps) - 2  # the last, and the one before it that keeps that company
