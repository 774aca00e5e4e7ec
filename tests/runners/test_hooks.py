"""The order of hooks, who runs them again and who must not, and what is no callback."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from callbacks import Callback, LoggerCallback
from edt_runner.callbacks.hooks import UserCallbacks
from edt_runner.errors import UsageError
from edt_runner.frameworks.carrying import carrying
from edt_runner.frameworks.pytorch import FRAMEWORK
from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.schedule import Schedule
from fabric_model.user_callbacks import attached


class Counting(Callback):
    """Says what it is called with, and counts in memory and in the optimizer."""

    def __init__(self, name: str, lines: list[str]) -> None:
        super().__init__()
        self.name, self.count = name, 0
        self.say = lines.append

    def on_train_begin(self) -> None:
        self._called("train begin")

    def on_train_end(self) -> None:
        self._called("train end")

    def on_epoch_begin(self, epoch: int) -> None:
        self._called(f"begin {epoch}")

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        self._called(f"end {epoch}{' saves' if save_model else ''}")

    def _called(self, what: str) -> None:
        self.count += 1
        self.params["optimizer"].param_groups[0]["lr"] += 1
        self.say(f"{self.name}: {what}")


class Process:
    """One process of a training, with two callbacks."""

    def __init__(self, *, runs: bool = True) -> None:
        self.lines: list[str] = []
        self.model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.0)
        adapter = TorchAdapter(self.model, self.optimizer, nn.functional.mse_loss, {}, torch.device("cpu"))
        self.callbacks = [Counting("a", self.lines), Counting("b", self.lines)]
        self.hooks = UserCallbacks(
            attached(self.callbacks, keras=False),
            self.model,
            self.optimizer,
            [self.model, self.optimizer],
            epochs=2,
            steps=3,
            seed=7,
            seed_framework=FRAMEWORK.seed,
            ran=adapter.recommit,
        )
        self.adapter = carrying(adapter, self.hooks if runs else None)

    @property
    def rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    def receive(self, other: Process) -> None:
        """The state of ``other``, as it comes over the wire."""
        state = other.adapter.export_state()
        meta = json.loads(json.dumps(state.meta))
        shapes = {name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in state.tensors.items()}
        with torch.no_grad():
            for name, place in self.adapter.begin_import(meta, shapes).items():
                place.copy_(state.tensors[name])
        self.adapter.end_import()


def test_the_driver_runs_no_hook_and_the_first_engine_runs_those_before_the_first_step() -> None:
    driver, engine = Process(runs=False), Process()
    engine.receive(driver)
    assert engine.lines == []
    engine.hooks.begin()
    assert driver.lines == []
    assert engine.lines == ["a: train begin", "b: train begin", "a: begin 0", "b: begin 0"]
    assert engine.rate == 4


def test_between_two_epochs_run_the_end_of_the_one_and_the_beginning_of_the_other() -> None:
    engine = Process()
    engine.hooks.begin()
    engine.lines.clear()
    engine.hooks.end_epoch(0, {}, last=False, saves=False)
    engine.hooks.end_epoch(1, {}, last=True, saves=True)
    assert [line for line in engine.lines if line.startswith("a")] == [
        "a: end 0",
        "a: begin 1",
        "a: end 1 saves",
        "a: train end",
    ]
    assert not engine.hooks.stopped


def test_a_joining_engine_takes_over_what_was_done_and_does_nothing_of_it_again() -> None:
    engine, joining = Process(), Process()
    engine.hooks.begin()
    engine.hooks.end_epoch(0, {}, last=False, saves=False)
    joining.receive(engine)
    joining.hooks.begin()
    assert joining.lines == ["a: train begin", "b: train begin"]  # it has made what it needs, and no more
    assert joining.rate == engine.rate == 8
    assert [callback.count for callback in joining.callbacks] == [4, 4]
    for process in (engine, joining):
        process.hooks.end_epoch(1, {}, last=True, saves=True)
    assert joining.rate == engine.rate == 12


def test_what_is_remembered_passes_through_the_driver_which_runs_nothing() -> None:
    engine, driver, next_one = Process(), Process(runs=False), Process()
    engine.hooks.begin()
    driver.receive(engine)
    next_one.receive(driver)
    next_one.hooks.begin()
    assert driver.lines == []
    assert next_one.rate == 4 and next_one.callbacks[1].count == 2


def test_a_first_engine_that_is_given_the_weights_anew_begins_anew() -> None:
    """It had begun, and nobody counted on it yet: its callbacks forget that they had."""
    driver, engine = Process(runs=False), Process()
    for _ in range(2):
        engine.receive(driver)
        engine.hooks.begin()
        assert engine.rate == 4
        assert [callback.count for callback in engine.callbacks] == [2, 2]


def test_random_numbers_in_a_hook_are_the_same_in_all_engines() -> None:
    class Drawing(Callback):
        def on_epoch_begin(self, epoch: int) -> None:
            self.drawn = [random.random(), torch.rand(1).item()]

    drawn = []
    for _ in range(2):
        process = Process()
        callback = Drawing()
        callbacks = attached(callback, keras=False)
        hooks = UserCallbacks(
            callbacks,
            process.model,
            process.optimizer,
            [],
            epochs=1,
            steps=1,
            seed=7,
            seed_framework=FRAMEWORK.seed,
            ran=lambda: None,
        )
        torch.rand(3)
        hooks.begin()
        drawn.append(callback.drawn)
    assert drawn[0] == drawn[1]


def test_what_a_hook_does_to_weights_and_buffers_is_the_state() -> None:
    class Resetting(Callback):
        def on_epoch_begin(self, epoch: int) -> None:
            with torch.no_grad():
                self.model[0].weight.fill_(2.0)
                self.model[1].running_mean.fill_(3.0)

    process = Process()
    adapter = process.adapter
    hooks = UserCallbacks(
        attached(Resetting(), keras=False),
        process.model,
        process.optimizer,
        [],
        epochs=1,
        steps=1,
        seed=7,
        seed_framework=FRAMEWORK.seed,
        ran=adapter.recommit,
    )
    hooks.begin()
    tensors = adapter.export_state().tensors
    assert (tensors["model.0.weight"] == 2).all() and (tensors["buffer.1.running_mean"] == 3).all()


@pytest.mark.parametrize("now", [True, False], ids=["unfrozen", "frozen"])
def test_a_hook_that_freezes_or_unfreezes_is_refused_since_a_joining_engine_would_not_know(now: bool) -> None:
    class Freezing(Callback):
        def on_epoch_begin(self, epoch: int) -> None:
            self.model[0].bias.requires_grad_(now)

    model = nn.Sequential(nn.Linear(2, 2))
    model[0].bias.requires_grad_(not now)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    hooks = UserCallbacks(
        attached(Freezing(), keras=False),
        model,
        optimizer,
        [],
        epochs=1,
        steps=1,
        seed=7,
        seed_framework=FRAMEWORK.seed,
        ran=TorchAdapter(model, optimizer, nn.functional.mse_loss, {}, torch.device("cpu")).recommit,
    )
    with pytest.raises(UsageError, match=r"user_callback: a hook has frozen or unfrozen 0\.bias.*lr 0"):
        hooks.begin()


def test_a_hook_of_a_model_that_asks_to_stop_ends_the_training_without_another_epoch() -> None:
    process, joining = Process(), Process()
    process.hooks.begin()
    process.model.stop_training = True  # type: ignore[assignment]
    process.hooks.end_epoch(0, {}, last=False, saves=False)
    assert process.hooks.stopped
    assert process.lines[-2:] == ["a: train end", "b: train end"]
    joining.receive(process)
    assert joining.hooks.stopped


@pytest.mark.parametrize(("asked", "stops"), [(np.bool_(True), True), (np.bool_(False), False), (lambda: True, False)])
def test_whatever_is_true_stops_and_a_method_of_that_name_does_not(asked: Any, stops: bool) -> None:
    process = Process()
    process.hooks.begin()
    process.model.stop_training = asked
    process.hooks.end_epoch(0, {}, last=False, saves=False)
    assert process.hooks.stopped is stops


def test_engines_that_send_a_state_together_have_its_tensors_in_one_order() -> None:
    """Whatever order each got the attributes in: a joining engine has them from elsewhere."""
    engine, joining = Process(), Process()
    for process in (engine, joining):
        process.callbacks[0].first, process.callbacks[0].second = torch.zeros(1), torch.ones(1)  # type: ignore[attr-defined]
    engine.hooks.begin()
    del engine.callbacks[0].first  # type: ignore[attr-defined]
    engine.callbacks[0].first = torch.ones(1)  # type: ignore[attr-defined]
    engine.hooks.end_epoch(0, {}, last=False, saves=False)
    joining.receive(engine)
    for process in (engine, joining):
        process.hooks.end_epoch(1, {}, last=False, saves=False)
    assert list(engine.adapter.export_state().tensors) == list(joining.adapter.export_state().tensors)


class Predicting(Callback):
    def on_predict_begin(self) -> None:
        pass

    def on_predict_batch_end(self, batch: int) -> None:
        pass


@pytest.mark.parametrize("given", [None, [], ()])
def test_no_callbacks_are_none(given: Any) -> None:
    assert not attached(given, keras=False)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Callback, ["user_callback: got the class Callback", "instance"]),
        ([Callback(), 3], ["user_callback[1]: got 3", "callbacks.Callback"]),
        ([same := Callback(), same], ["the same callback twice"]),
        (LoggerCallback(), ["user_callback", "LoggerCallback", "a logger goes to driver_logger_callback"]),
        (
            Predicting(),
            ["Predicting has on_predict_batch_end, on_predict_begin", "takes the hooks", "on_train_batch_end"],
        ),
    ],
)
def test_what_is_no_callback_is_refused(given: Any, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        attached(given, keras=False)
    assert all(word in str(caught.value) for word in words), str(caught.value)


# ── hooks of single steps ───────────────────────────────────────────────────────────────────────────────────────
class OfSteps(Callback):
    """Says what it is called with; its memory is part of the training's."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.say, self.calls = lines.append, 0

    def on_epoch_begin(self, epoch: int) -> None:
        self._called(f"epoch {epoch}")

    def on_train_batch_begin(self, batch: int) -> None:
        self._called(f"begin {batch}")

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        self._called(f"end {batch} {logs['loss']:g} {self.metrics['loss']:g}")

    def on_test_begin(self) -> None:
        self._called("test")

    def on_test_batch_end(self, batch: int) -> None:
        self._called(f"tested {batch} {self.metrics['loss']:g}")

    def on_test_end(self, logs: Any = None) -> None:
        self._called(f"test end {logs['loss']:g}")

    def _called(self, what: str) -> None:
        self.calls += 1
        self.say(f"{what} {random.random():.3f}")


def of_steps(lines: list[str], model: Any) -> UserCallbacks:
    hooks = UserCallbacks(
        attached(OfSteps(lines), keras=False),
        model,
        None,
        [model],
        epochs=2,
        steps=2,
        seed=7,
        seed_framework=lambda seed: None,
        ran=lambda: None,
    )
    hooks.begin()
    return hooks


def run(hooks: UserCallbacks, schedule: Schedule, offsets: range) -> None:
    """The commits of these steps, with the offset as their loss."""
    for offset in offsets:
        step = schedule.at(offset)
        hooks.end_step(step, {"loss": float(offset)})
        if step.ends_epoch:
            hooks.end_epoch(step.epoch, {}, last=offset + 1 == schedule.length, saves=False)


def test_hooks_of_steps_run_between_steps_and_under_the_same_seeds_in_who_joins_between() -> None:
    schedule = Schedule(train_samples=8, test_samples=8, micro_batches=1, batch_size=4, epochs=2)
    lines: list[str] = []
    hooks = of_steps(lines, nn.Linear(1, 1))
    run(hooks, schedule, range(8))
    first = "epoch 0, begin 0, end 0 0 0, begin 1, end 1 1 1, test, tested 0 2, tested 1 3, test end 3"
    second = "epoch 1, begin 0, end 0 4 4, begin 1, end 1 5 5, test, tested 0 6, tested 1 7, test end 7"
    assert [line.rpartition(" ")[0] for line in lines] == f"{first}, {second}".split(", ")
    for at in range(1, 8):
        ours: list[str] = []
        before = of_steps([], nn.Linear(1, 1))
        run(before, schedule, range(at))
        record, tensors = before.export()
        joined = of_steps(ours, nn.Linear(1, 1))
        ours.clear()  # its own first hooks, which the received state replaces
        joined.restore(json.loads(json.dumps(record)), tensors)
        run(joined, schedule, range(at, 8))
        assert ours == lines[-len(ours) :]
        assert joined._callbacks[0].inner.calls == len(lines)


def test_a_stop_that_a_step_asks_for_ends_the_training_at_the_epochs_end_in_who_joins_after_it_too() -> None:
    schedule = Schedule(train_samples=8, test_samples=0, micro_batches=1, batch_size=4, epochs=2)
    model: Any = nn.Linear(1, 1)
    hooks, others = of_steps([], model), of_steps([], nn.Linear(1, 1))
    model.stop_training = True
    run(hooks, schedule, range(1))
    assert not hooks.stopped
    record, tensors = hooks.export()
    others.restore(json.loads(json.dumps(record)), tensors)
    for each in (hooks, others):
        run(each, schedule, range(1, 2))
        assert each.stopped
