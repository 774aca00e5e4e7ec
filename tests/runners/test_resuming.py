"""How a training goes on from a checkpoint: its place, and whose settings count."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from edt_contract.checkpoints import Checkpoint
from edt_contract.encoding import to_json_object
from edt_runner import resuming
from edt_runner.adapter import State
from edt_runner.errors import UsageError
from edt_runner.protocol.data import ReplicaHistory
from edt_runner.schedule import Schedule, StepKind

SCHEDULE = Schedule(train_samples=60, test_samples=20, micro_batches=2, batch_size=3, epochs=4)


def state(lr: float = 0.1, **meta: Any) -> State:
    """Of a torch optimizer with one group, before the first step."""
    groups = [{"lr": lr, "betas": (0.9, 0.99), "nesterov": False}]
    return State({"groups": groups, "plain": {}, **meta}, {"model.weight": torch.ones(2)})


def identity(schedule: Schedule = SCHEDULE, begins: State | None = None, **facts: Any) -> dict[str, Any]:
    whole = {
        **schedule.to_json_object(),
        "seed": 7,
        "batch_scaling": "fixed",
        "emulated widths": None,
        "first training sample": "abc",
        "test samples": schedule.test_samples,
        "optimizer": "SGD",
        "lr_rule": None,
        "user_callback": [],
        "arguments": [],
        "reduction": "exact",
        **facts,
    }
    return resuming.identity(whole, begins or state())


def checkpoint(offset: int, then: Mapping[str, Any], meta: Mapping[str, Any] | None = None, **more: Any) -> Checkpoint:
    manifest = {"identity": then, "meta": meta or dict(state(0.01).meta), "metric_sums": {"train": [1.0]}, **more}
    return Checkpoint(Path("at-0"), offset, manifest)


def begun(found: Checkpoint, now: Mapping[str, Any], schedule: Schedule = SCHEDULE, **begins: Any) -> resuming.Start:
    return resuming.from_another("edt-7", found, now, schedule, state(**begins))


class TestPlaces:
    @given(
        st.integers(0, 60),
        st.integers(1, 6),
        st.sampled_from([0, 1, 2, 3]),
        st.sampled_from([0, 1, 2, 3]),
        st.booleans(),
    )
    def test_a_training_step_has_the_same_place_whatever_is_validated(
        self, offset: int, epochs: int, freq: int, other: int, follows: bool
    ) -> None:
        micro_batches = 1 if follows else 2
        before = Schedule(60, 20, micro_batches, 3, epochs, freq, follows_engines=follows)
        after = Schedule(60, 25, micro_batches, 3, 6, other, follows_engines=follows)
        offset = min(offset, before.length)
        moved = resuming.moved(before, offset, after)
        if offset == before.length:
            assert moved == after.offset_of(epochs)
            return
        was, now = before.at(offset), after.at(moved) if moved < after.length else None
        if was.kind is StepKind.TRAIN:
            assert now is not None
            assert (now.kind, now.epoch, now.index) == (StepKind.TRAIN, was.epoch, was.index)
        elif now is not None:
            validates = now.kind is StepKind.VALIDATE and (now.epoch, now.index) == (was.epoch, 0)
            assert validates or (now.kind, now.epoch, now.index) == (StepKind.TRAIN, was.epoch + 1, 0)

    def test_with_other_epochs_alone_every_offset_stays(self) -> None:
        longer = Schedule(60, 20, 2, 3, 9)
        assert [resuming.moved(SCHEDULE, offset, longer) for offset in range(SCHEDULE.length + 1)] == list(
            range(SCHEDULE.length + 1)
        )


class TestAnotherJobsCheckpoint:
    def test_more_epochs_go_on_at_the_same_step(self) -> None:
        longer = Schedule(60, 20, 2, 3, 9)
        history = ReplicaHistory(several=True, equal_at=12, computing={"cpu": "x"})
        start = begun(
            checkpoint(12, identity(), replicas=to_json_object(history), computing={"cpu": "x"}),
            identity(longer),
            longer,
        )
        assert (start.offset, start.resumed, start.metric_sums) == (12, True, {"train": [1.0]})
        assert start.history == history
        assert list(start.notes) == ["Resuming from step 10 of 90, with the state of edt-7."]

    def test_another_validation_begins_anew_at_its_first_step(self) -> None:
        other = Schedule(60, 50, 2, 3, 4)
        sums = {"train": [1.0], "validate": [2.0]}
        found = checkpoint(11, identity(), metric_sums=sums)  # in the middle of the first epoch's
        start = begun(found, identity(other), other)
        assert (start.offset, start.metric_sums) == (10, {"train": [1.0]})

    def test_other_steps_begin_at_step_0_and_say_why(self) -> None:
        other = Schedule(60, 20, 2, 5, 4)
        meta = {**state(0.001).meta, "callbacks": {"records": [1], "stopped": True}}
        start = begun(checkpoint(12, identity(), meta), identity(other, state(0.5)), other, lr=0.5)
        assert (start.offset, start.resumed, start.metric_sums) == (0, False, {})
        assert start.meta["groups"][0]["lr"] == 0.5  # a schedule begins anew, too
        assert start.meta["callbacks"] is None
        (note,) = start.notes
        assert note == (
            "Beginning at step 0 with the weights and the optimizer of edt-7, since its steps were others "
            "(batch_size was 3, is 5)."
        )

    def test_nothing_left_to_train_is_an_error_that_says_what_to_do(self) -> None:
        with pytest.raises(
            UsageError, match=r"it has done 40 steps, and this script's 4 epochs have 40; takes more epochs"
        ):
            begun(checkpoint(SCHEDULE.length, identity()), identity())

    @pytest.mark.parametrize(("name", "before", "now"), [("optimizer", "SGD", "Adam"), ("lr_rule", None, "adascale")])
    def test_another_optimizer_or_rule_is_an_error_that_names_both(self, name: str, before: Any, now: Any) -> None:
        with pytest.raises(UsageError, match=f"edt-7: {name} was {before} there and is {now} in this script"):
            begun(checkpoint(4, identity(**{name: before})), identity(**{name: now}))

    def test_other_callbacks_begin_anew_and_what_else_differs_is_told(self) -> None:
        meta = {**state().meta, "callbacks": {"records": [1], "stopped": False}}
        start = begun(
            checkpoint(4, identity(user_callback=["A"]), meta), identity(user_callback=["B"], reduction="fast")
        )
        assert start.meta["callbacks"] is None
        assert "user_callback was ['A'] in edt-7, is ['B'] here." in start.notes
        assert "reduction was exact in edt-7, is fast here." in start.notes
        tensors = {"model.weight": torch.ones(1), "callback.0.x": torch.ones(1)}
        assert list(start.edit(tensors)) == ["model.weight"]

    def test_a_callback_that_had_stopped_the_training_does_not_stop_this_one(self) -> None:
        meta = {**state().meta, "callbacks": {"records": [1], "stopped": True}}
        start = begun(checkpoint(4, identity(), meta), identity())
        assert start.meta["callbacks"] == {"records": [1], "stopped": False, "asked": False}


class TestSettings:
    def test_a_rate_that_a_schedule_has_moved_stays_where_the_script_is_unchanged(self) -> None:
        start = begun(checkpoint(4, identity()), identity())
        assert start.meta["groups"][0]["lr"] == 0.01  # it began with 0.1 in both

    def test_a_setting_that_the_script_begins_with_otherwise_is_the_scripts(self) -> None:
        start = begun(checkpoint(4, identity()), identity(begins=state(0.5)), lr=0.5)
        assert start.meta["groups"][0] == {"lr": 0.5, "betas": (0.9, 0.99), "nesterov": False}
        assert any("lr of group 0 0.1 → 0.5" in note for note in start.notes)

    def test_a_rate_that_is_a_tensor_or_a_variable_is_changed_in_the_tensors(self) -> None:
        def begins(rate: float) -> State:
            tensors = {
                "group.0.lr": torch.tensor(rate),
                "optimizer.1": torch.tensor(rate),
                "optimizer.0": torch.tensor(0),
            }
            return State({"groups": [{}], "plain": {}}, tensors, {"optimizer.1": "adam/learning_rate"})

        found = checkpoint(4, identity(begins=begins(0.25)), begins(0.125).meta)
        start = resuming.from_another("edt-7", found, identity(begins=begins(0.5)), SCHEDULE, begins(0.5))
        stored = {"group.0.lr": torch.tensor(0.125), "optimizer.1": torch.tensor(0.125), "optimizer.0": torch.tensor(9)}
        assert {name: float(tensor) for name, tensor in start.edit(stored).items()} == {
            "group.0.lr": 0.5,
            "optimizer.1": 0.5,
            "optimizer.0": 9.0,
        }

    def test_what_a_scheduler_begins_with_is_a_setting_and_where_it_stands_is_not(self) -> None:
        def scheduler(rate: float, epoch: int) -> dict[str, Any]:
            record = {"itself": {"dict": [["base_lrs", {"list": [rate]}], ["last_epoch", epoch]]}}
            return {"companions": [["StepLR", record]]}

        found = checkpoint(
            4, identity(begins=state(0.1, **scheduler(0.1, 0))), {**state(0.01).meta, **scheduler(0.1, 3)}
        )
        start = begun(found, identity(begins=state(0.5, **scheduler(0.5, 0))), lr=0.5)
        assert start.meta["companions"] == scheduler(0.5, 3)["companions"]

    def test_a_checkpoint_of_an_earlier_release_keeps_its_own(self) -> None:
        then = {name: value for name, value in identity().items() if name != resuming.SETTINGS}
        start = begun(checkpoint(4, then), identity(begins=state(0.5)), lr=0.5)
        assert start.meta["groups"][0]["lr"] == 0.01


class TestOwnCheckpoints:
    def test_another_number_of_epochs_is_another_training_unless_the_job_was_given_it(self) -> None:
        then, now = identity(), identity(Schedule(60, 20, 2, 3, 9))
        assert "epochs was 4, is 9" in resuming.difference(now, then, extended=False)
        assert resuming.difference(now, then, extended=True) == ""

    def test_fewer_epochs_than_it_has_done_is_an_error(self) -> None:
        shorter = Schedule(60, 20, 2, 3, 1)
        with pytest.raises(UsageError, match="got 1 epochs in all, takes more: the training has done 12 steps"):
            resuming.from_own(checkpoint(16, identity()), identity(shorter), shorter)

    def test_a_callback_that_had_stopped_it_does_not_stop_it_when_it_was_given_more_epochs(self) -> None:
        meta = {**state().meta, "callbacks": {"records": [], "stopped": True}}
        longer = Schedule(60, 20, 2, 3, 9)
        assert resuming.from_own(checkpoint(14, identity(), meta), identity(longer), longer).meta["callbacks"] == {
            "records": [],
            "stopped": False,
            "asked": False,
        }
        assert resuming.from_own(checkpoint(14, identity(), meta), identity(), SCHEDULE).meta["callbacks"]["stopped"]
