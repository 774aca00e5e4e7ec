"""A batch that follows the engines: positions count micro-batches, and what a micro-batch is depends on no width."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from edt_demo.sample_record import audit, read, widths
from edt_runner.coordinator.changes import target
from edt_runner.coordinator.members import Generation, Members
from edt_runner.coordinator.regroup_plan import plan_regroup
from edt_runner.engine.telemetry import Recorder
from edt_runner.errors import UsageError
from edt_runner.protocol.data import CatchUp, RegroupStatus
from edt_runner.schedule import Schedule, Step, StepKind, Widths
from edt_runner.seeds import step_seed
from fabric_model import FabricModel
from support.talk import Talk

SEED = 5
followers = st.builds(
    Schedule,
    train_samples=st.integers(1, 300),
    test_samples=st.integers(0, 60),
    micro_batches=st.just(1),
    batch_size=st.integers(1, 9),
    epochs=st.integers(1, 3),
    validation_freq=st.integers(0, 2),
    follows_engines=st.just(True),
)


def steps_of(schedule: Schedule, sizes: Sequence[int]) -> Iterator[tuple[int, Step]]:
    """(position, step) of a training whose steps would be so wide, in turn."""
    position = 0
    for size in itertools.cycle(sizes):
        if position >= schedule.length:
            return
        step = schedule.at(position, size)
        yield position, step
        position += step.advance


# ── positions ─────────────────────────────────────────────────────────────────────────────────────────────────
@given(followers, st.lists(st.integers(1, 7), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_every_sample_counts_once_an_epoch_whatever_the_widths_are(schedule: Schedule, sizes: list[int]) -> None:
    seen: dict[tuple[StepKind, int], list[int]] = {}
    for _, step in steps_of(schedule, sizes):
        found = [schedule.samples(SEED, step, worker) for worker in range(step.micro_batches)]
        assert all(len(part) for part in found), "a micro-batch is never empty"
        if step.kind is StepKind.TRAIN:
            assert schedule.sample_count(step) == sum(map(len, found))
        seen.setdefault((step.kind, step.epoch), []).extend(np.concatenate(found).tolist())
    for epoch in range(schedule.epochs):
        assert sorted(seen[StepKind.TRAIN, epoch]) == list(range(schedule.train_samples))
    for (kind, _), samples in seen.items():
        assert kind is StepKind.TRAIN or samples == list(range(schedule.test_samples))


@given(followers, st.lists(st.integers(1, 7), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_a_micro_batch_is_the_same_in_a_step_of_any_width(schedule: Schedule, sizes: list[int]) -> None:
    for position, step in steps_of(schedule, sizes):
        for worker in range(step.micro_batches):
            alone = schedule.at(position + worker)
            assert alone.kind is step.kind and alone.epoch == step.epoch
            one, other = (schedule.samples(SEED, *place) for place in ((step, worker), (alone, 0)))
            assert one.tolist() == other.tolist()
            streams = (schedule.stream(position, worker), schedule.stream(position + worker, 0))
            assert step_seed(SEED, *streams[0]) == step_seed(SEED, *streams[1])


@given(followers, st.lists(st.integers(1, 7), min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_steps_are_clipped_where_their_kind_or_epoch_ends(schedule: Schedule, sizes: list[int]) -> None:
    steps = [step for _, step in steps_of(schedule, sizes)]
    assert sum(step.advance for step in steps) == schedule.length
    assert sum(step.ends_epoch for step in steps) == schedule.epochs
    trained = [step for step in steps if step.kind is StepKind.TRAIN]
    assert [step.training_steps_before for step in trained] == [
        0,
        *(step.training_steps_after for step in trained[:-1]),
    ]
    assert trained[-1].training_steps_after == schedule.steps
    assert sum(step.last for step in trained) == schedule.epochs
    assert all(step.micro_batches == step.advance for step in steps)


def test_with_a_fixed_batch_a_position_is_a_step_of_e_micro_batches() -> None:
    schedule = Schedule(100, 10, micro_batches=4, batch_size=5, epochs=2)
    assert schedule.at(3, 7) == schedule.at(3)
    assert (schedule.at(3).micro_batches, schedule.at(3).advance, schedule.at(3).training_steps_after) == (4, 1, 4)
    assert schedule.stream(3, 2) == (3, 2)


def test_a_checkpoint_of_an_earlier_release_means_a_fixed_batch() -> None:
    schedule = Schedule(100, 10, micro_batches=4, batch_size=5, epochs=2)
    written = schedule.to_json_object()
    del written["follows_engines"]
    assert Schedule.from_json_object(written) == schedule
    following = Schedule(100, 10, 1, 5, 2, follows_engines=True)
    assert Schedule.from_json_object(following.to_json_object()) == following


# ── widths ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_widths_are_fixed_or_of_the_engines_or_laid_down() -> None:
    assert [Widths([(0, 4)]).at(9, engines) for engines in (1, 3)] == [4, 4]
    assert [Widths().at(9, engines) for engines in (1, 3)] == [1, 3]
    traced = Widths([(0, 4), (120, 2), (121, 8)])
    assert [traced.at(position, 3) for position in (0, 119, 120, 121, 10**9)] == [4, 4, 2, 8, 8]
    assert traced.most == 8


# ── after a crash ─────────────────────────────────────────────────────────────────────────────────────────────
def test_the_step_under_way_stays_as_wide_as_it_was_begun() -> None:
    """Three had begun it at position 12, one is dead: two do its three micro-batches."""
    statuses = {
        name: RegroupStatus(12, True, spans, micro_batches=3, offset_after=15)
        for name, spans in (("1", ((0, 1),)), ("3", ()))
    }
    plan = plan_regroup(("1", "2", "3"), statuses)
    assert (plan.split, plan.recomputed, plan.offset) == (((0, 1), (2,)), 2, 12)


def test_whoever_is_behind_by_one_wide_step_gets_its_reduced_gradients() -> None:
    statuses = {
        "1": RegroupStatus(15, True, micro_batches=2, offset_after=17),
        "2": RegroupStatus(12, False, micro_batches=3, offset_after=15),
    }
    plan = plan_regroup(("1", "2"), statuses)
    assert (plan.offset, plan.behind, plan.catch_up, plan.split) == (15, ("2",), CatchUp.REDUCED, ((0,), (1,)))


def test_whoever_is_behind_by_more_gets_the_state() -> None:
    statuses = {
        "1": RegroupStatus(15, True, micro_batches=2, offset_after=17),
        "2": RegroupStatus(10, False, micro_batches=3, offset_after=13),
    }
    assert plan_regroup(("1", "2"), statuses).catch_up == CatchUp.STATE


def test_where_a_switch_was_half_done_whoever_has_begun_the_step_says_how_wide_it_is() -> None:
    """Engine 1 had not yet switched to the smaller group; 2 had, and has summed one of two micro-batches."""
    statuses = {
        "1": RegroupStatus(12, True, micro_batches=3, offset_after=15),
        "2": RegroupStatus(12, True, ((1, 2),), micro_batches=2, offset_after=14),
    }
    assert plan_regroup(("1", "2"), statuses).split == ((0,), (1,))


def test_where_the_training_has_ended_nothing_is_computed_again() -> None:
    statuses = {
        "1": RegroupStatus(20, True, ended=True, offset_after=20),
        "2": RegroupStatus(18, False, micro_batches=2, offset_after=20),
    }
    plan = plan_regroup(("1", "2"), statuses)
    assert (plan.catch_up, plan.recomputed, plan.split) == (CatchUp.REDUCED, 0, ((), ()))


# ── the coordinator ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("most", [4, 60])
def test_so_many_engines_are_let_in_as_are_of_use(most: int) -> None:
    members = Members()
    members.definition = replace(Talk().definition, max_engines=most)
    members.current = Generation(1, ("1",))
    for name in range(2, 100):
        members.wait(str(name))
    assert len(target(members) or ()) == most


# ── the sample record ─────────────────────────────────────────────────────────────────────────────────────────
def note(recorder: Recorder, step: int, width: int) -> None:
    for worker in range(width):
        recorder.hold(0, step, worker, np.array([step + worker]))
    recorder.trying(step, 0)
    recorder.commit(step, 0, width)


def test_an_attempt_voids_what_earlier_ones_committed_behind_its_first_step(tmp_path: Path) -> None:
    """They cut the epoch into other steps, so that the numbers of the steps alone do not tell."""
    before, after = Recorder(str(tmp_path), 1, "5"), Recorder(str(tmp_path), 2, "6")
    for step, width in ((0, 2), (2, 3), (5, 3)):
        note(before, step, width)
    note(after, 2, 2)
    assert widths(tmp_path) == [(0, 2), (2, 2)]
    for step in (4, 6):
        note(after, step, 2)
    assert [(found.lost, found.repeated) for found in audit(read(tmp_path), 8, 1)] == [((), ())]
    assert widths(tmp_path) == [(0, 2), (2, 2), (4, 2), (6, 2)]


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────────────────
def asked(monkeypatch: pytest.MonkeyPatch, *call: Any, **changes: Any) -> Any:
    found: list[Any] = []
    monkeypatch.setattr("fabric_model.model.train", found.append)
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    model = FabricModel(net, lambda: ([], []), nn.functional.cross_entropy, optimizer)
    model.train(*call, **changes)
    return found[0]


@pytest.mark.parametrize(
    ("engines", "effective", "reference"), [(None, None, 8), (4, None, 32), (None, 100, 100), (4, 64, 64)]
)
def test_the_reference_is_the_batch_that_the_learning_rate_was_chosen_for(
    monkeypatch: pytest.MonkeyPatch, engines: int | None, effective: int | None, reference: int
) -> None:
    request = asked(
        monkeypatch, 1, 8, engines, effective_batch_size=effective, batch_scaling="per_engine", lr_rule="linear"
    )
    assert (request.reference_batch, request.follows_engines, request.lr_rule.name) == (reference, True, "linear")


def test_by_default_the_batch_is_fixed_and_there_is_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    request = asked(monkeypatch, 1, 8, 4)
    assert (request.follows_engines, request.lr_rule, request.micro_batches) == (False, None, 4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_scaling": "linear"}, "batch_scaling: got 'linear', takes 'fixed' or 'per_engine'"),
        ({"lr_rule": "liner"}, "lr_rule: got 'liner', takes one of .*linear"),
        ({"batch_scaling": "per_engine", "effective_batch_size": 0}, "effective_batch_size: got 0"),
    ],
)
def test_wrong_arguments_are_named(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        asked(monkeypatch, 1, 8, 4, **changes)
