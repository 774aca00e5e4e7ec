"""What all adapters promise alike: frozen, shared and unused parameters, state of every kind, what travels."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from edt_runner.errors import StateMismatch
from edt_runner.frameworks.flat import checksums
from edt_runner.frameworks.trainable import EngineAdapter
from edt_runner.schedule import StepKind
from support.sides import Keras, PyTorch, Side, carry, on_side, step

_COMMON = ("nesterov", "amsgrad", "nadam")
_OF_TORCH = ("adamw of a tensor", "rmsprop", "adagrad", "asgd")
_OF_KERAS = ("scheduled", "averaged", "ftrl", "scaled")
OPTIMIZERS = [
    *(on_side("pytorch", name) for name in (*_COMMON, *_OF_TORCH)),
    *(on_side("keras", name) for name in (*_COMMON, *_OF_KERAS, "every second")),
    *(on_side("tf_keras", name) for name in (*_COMMON, *_OF_KERAS, "old adam", "old sgd with decay")),
]


@pytest.fixture(params=map(on_side, ["pytorch", "keras", "tf_keras"]))
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    name = request.param
    if name == "pytorch":
        yield PyTorch()
        return
    yield Keras(name)


def changed(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name, value in after.items() if not np.array_equal(value, before[name])}


@pytest.mark.parametrize(("model", "optimizer"), [("linear", "adam"), ("shared", "sgd")])
def test_micro_batches_make_the_step_of_one_large_batch(side: Side, model: str, optimizer: str) -> None:
    parts = side.batch(1, rows=2), side.batch(2, rows=4)
    adapter = side.adapter(model, optimizer)
    step(adapter, *parts)
    for name, value in side.plain(model, optimizer, side.joined(*parts)).items():
        np.testing.assert_allclose(side.state(adapter)[name], value, atol=1e-6)


@pytest.mark.parametrize("model", ["normed", "averaging"])
def test_one_micro_batch_makes_the_frameworks_own_step(side: Side, model: str) -> None:
    adapter = side.adapter(model, "adam")
    for seed in range(3):
        step(adapter, side.batch(seed, rows=4))
    plain = side.plain(model, "adam", *(side.batch(seed, rows=4) for seed in range(3)))
    ours = side.state(adapter)
    assert ours.keys() == plain.keys()
    for name, value in plain.items():
        np.testing.assert_allclose(ours[name], value, atol=1e-6)


def test_what_is_said_of_a_step_is_the_mean_over_its_samples(side: Side) -> None:
    one, other = side.batch(1, rows=2), side.batch(2, rows=6)
    loss = step(side.adapter(), one, other)["loss"]
    assert loss == pytest.approx(step(side.adapter(), side.joined(one, other))["loss"], rel=1e-5)


def test_evaluating_says_what_training_says_before_its_step(side: Side) -> None:
    adapter = side.adapter()
    numbers = torch.full((adapter.size(StepKind.VALIDATE),), float("nan"))
    adapter.evaluate(side.batch(1), 2, 0, numbers)
    values = adapter.values(adapter.sums(StepKind.VALIDATE, numbers))
    assert values == pytest.approx(step(adapter, side.batch(1)))
    assert adapter.width == len(adapter.sums(StepKind.TRAIN, numbers))


def test_frozen_parameters_stay_and_unused_ones_get_no_gradient(side: Side) -> None:
    """An unused parameter under weight decay moves if it gets a zero gradient, and must not."""
    adapter = side.adapter("corners", "decaying")
    before = side.state(adapter)
    step(adapter, side.batch())
    assert {name.partition("/")[0] for name in changed(before, side.state(adapter))} == {"used"}


def test_batch_normalization_commits_the_mean_of_its_micro_batches(side: Side) -> None:
    adapter = side.adapter("normed")
    step(adapter, side.batch(1), side.batch(2))
    means = [np.asarray(side.batch(seed)[0]).mean(0) for seed in (1, 2)]
    running = next(value for name, value in side.state(adapter).items() if name.endswith("_mean"))
    np.testing.assert_allclose(running, 0.1 * (means[0] + means[1]) / 2, rtol=1e-5)
    assert adapter.take_warnings() == []


def test_what_micro_batches_count_alike_is_counted_once_a_step(side: Side) -> None:
    adapter = side.adapter("counting")
    for _ in range(2):
        step(adapter, side.batch(1), side.batch(2), side.batch(3))
    assert _held(side, adapter) == 2
    assert adapter.take_warnings() == []


def test_an_integer_that_cannot_be_combined_ends_the_guarantee_by_name(side: Side) -> None:
    adapter = side.adapter("odd")
    step(adapter, side.batch(1), side.batch(2))
    ((what, why),) = adapter.take_warnings()
    assert "held" in what
    assert "micro-batches move differently" in why
    step(adapter, side.batch(1), side.batch(2))
    assert adapter.take_warnings() == []  # told once


def test_state_that_a_model_computes_by_itself_is_committed_as_the_mean(side: Side) -> None:
    adapter = side.adapter("averaging")
    step(adapter, side.batch(1), side.batch(2))
    expected = 0.25 * (np.asarray(side.batch(1)[0]).mean(0) + np.asarray(side.batch(2)[0]).mean(0))
    np.testing.assert_allclose(_held(side, adapter), expected, rtol=1e-5)


def test_state_that_nothing_changes_stays_as_it_is_to_the_bit(side: Side) -> None:
    adapter = side.adapter("constant")
    before = _held(side, adapter)
    step(adapter, side.batch(1), side.batch(2), side.batch(3))
    np.testing.assert_array_equal(_held(side, adapter), before)


@pytest.mark.parametrize("model", ["normed", "dropping"])
def test_nothing_but_a_step_changes_the_state(side: Side, model: str) -> None:
    adapter = side.adapter(model)
    before = adapter.digest()
    adapter.warm_up(side.batch())
    adapter.evaluate(side.batch(), 2, 0, torch.empty(adapter.size(StepKind.VALIDATE)))
    adapter.micro_batch(side.batch(), 2, 2, 0, torch.empty(adapter.size(StepKind.TRAIN)))
    adapter.export_state()
    assert adapter.digest() == before


def test_a_state_that_was_exported_stays_what_it_is_while_passes_are_computed(side: Side) -> None:
    """They move the statistics of a normalization, and put them back: its checksums are taken beside them."""
    adapter = side.adapter("normed")
    step(adapter, side.batch(1))
    state, local = adapter.export_state(), torch.empty(adapter.size(StepKind.TRAIN), dtype=adapter.dtype)
    passes = threading.Thread(target=lambda: [adapter.micro_batch(side.batch(2), 2, 2, 0, local) for _ in range(200)])
    expected, found = checksums(state), []
    passes.start()
    while passes.is_alive():
        found.append(checksums(state))
    assert found and all(each == expected for each in found)


def test_an_adapter_that_was_warmed_up_makes_the_same_steps(side: Side) -> None:
    """A joining engine has seen a batch that the others have not."""
    warm, cold = side.adapter("dropping"), side.adapter("dropping")
    warm.warm_up(side.batch(7))
    for adapter in (warm, cold):
        step(adapter, side.batch(1), side.batch(2))
    assert warm.digest() == cold.digest()


def test_dropout_depends_on_the_seed_of_the_micro_batch_alone(side: Side) -> None:
    adapter = side.adapter("dropping")
    vectors = [torch.empty(adapter.size(StepKind.TRAIN)) for _ in range(3)]
    for local, seed in zip(vectors, (11, 12, 11), strict=True):
        adapter.micro_batch(side.batch(rows=8), 8, 8, seed, local)
    assert torch.equal(vectors[0], vectors[2])
    assert not torch.equal(vectors[0], vectors[1])
    assert adapter.take_warnings() == []


@pytest.mark.parametrize(("side", "optimizer"), OPTIMIZERS, indirect=["side"])
def test_a_carried_state_trains_on_with_the_same_bits(side: Side, optimizer: str) -> None:
    first, second = side.adapter("linear", optimizer), side.adapter("linear", optimizer)
    step(first, side.batch(0))
    step(first, side.batch(1))
    assert first.digest() != second.digest()
    carry(first, second)
    assert first.digest() == second.digest()
    for adapter in (first, second):
        step(adapter, side.batch(2), side.batch(3))
        step(adapter, side.batch(4), side.batch(5))
    assert first.digest() == second.digest()


def differing(one: EngineAdapter, other: EngineAdapter) -> list[str]:
    """What is not the same in both, in the order in which it would be named."""
    pairs = zip(checksums(one.export_state()), checksums(other.export_state()), strict=True)
    return [called for (called, value), (_, theirs) in pairs if value != theirs]


@pytest.mark.parametrize("model", ["normed", "averaging"])
def test_every_tensor_that_differs_is_found_and_named(side: Side, model: str) -> None:
    one, other = side.adapter(model, "amsgrad"), side.adapter(model, "amsgrad")
    for adapter in (one, other):
        step(adapter, side.batch(1), side.batch(2))
    assert differing(one, other) == []
    state = other.export_state()
    names = set()
    for name in state.tensors:
        kept = {each: tensor.clone() for each, tensor in state.tensors.items()}
        hurt = {**kept, name: kept[name] + 1}
        put(other, state.meta, hurt)
        (named,) = [called for called in differing(one, other) if called != "optimizer setting learning_rate"]
        names.add(named)
        put(other, state.meta, kept)
        assert differing(one, other) == []
    assert len(names) == len(state.tensors)


def put(adapter: EngineAdapter, meta: Any, tensors: Any) -> None:
    shapes = {name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in tensors.items()}
    for name, place in adapter.begin_import(meta, shapes).items():
        place.copy_(tensors[name])
    adapter.end_import()


@pytest.mark.parametrize("optimizer", ["amsgrad", "nesterov", "decaying"])
def test_every_setting_of_the_optimizer_that_differs_is_named_first_and_goes_over_with_the_state(
    side: Side, optimizer: str
) -> None:
    one, other = side.adapter("linear", optimizer), side.adapter("linear", optimizer)
    for adapter in (one, other):
        step(adapter, side.batch(0))
    for name, value in side.settings(optimizer).items():
        side.set(other, name, value)
        named = differing(one, other)
        assert named and named[0].startswith(f"optimizer setting {name}"), named
        carry(one, other)
        assert differing(one, other) == []
    for adapter in (one, other):
        step(adapter, side.batch(1))
    assert differing(one, other) == [], "the next step is taken with the settings that came over"


def test_shared_parameters_are_carried_once(side: Side) -> None:
    one, other = side.adapter("shared"), side.adapter("shared")
    step(one, side.batch())
    assert sum(name.startswith("model.") for name in one.export_state().tensors) == 4
    carry(one, other)
    for name, value in side.state(one).items():
        np.testing.assert_array_equal(side.state(other)[name], value)


def test_a_model_of_another_shape_is_named_with_both_shapes(side: Side) -> None:
    with pytest.raises(StateMismatch, match=r"float32 \[.*\] in the training, float32 \[.*\]"):
        carry(side.adapter("linear"), side.adapter("wide"))


def test_a_model_with_other_names_is_refused_by_name(side: Side) -> None:
    with pytest.raises(StateMismatch, match="bias"):
        carry(side.adapter("linear"), side.adapter("no bias"))


def test_a_float64_model_is_summed_in_float64(side: Side) -> None:
    assert side.adapter("float64").dtype is torch.float64
    assert side.adapter("linear").dtype is torch.float32


def _held(side: Side, adapter: Any) -> Any:
    return next(value for name, value in side.state(adapter).items() if name.rpartition("/")[2] == "held")
