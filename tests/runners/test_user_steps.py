"""A user's own functions for a micro-batch: WMLA's ``fn_step_train`` and ``fn_test``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from edt_runner.errors import UsageError
from edt_runner.frameworks.trainable import EngineAdapter
from edt_runner.schedule import StepKind
from fabric_model import FabricModel
from support.sides import Batch, step

SET = TensorDataset(torch.arange(30.0).reshape(10, 3), torch.arange(10) % 4)


def own_step(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> tuple[Any, Any]:
    inputs, labels = data
    model.get_optimizer().zero_grad()
    outputs = model(inputs)
    loss = model.get_loss_function()(outputs, labels)
    loss.backward()
    return eva(outputs, labels), loss


def own_test(model: Any, test_iter: Any, fn_args: Any) -> float:
    losses = [model.get_loss_function()(model(inputs), labels).item() for inputs, labels in test_iter]
    return sum(losses) / len(losses)


def batch(seed: int, rows: int = 4) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, generator=generator), torch.randint(0, 4, (rows,), generator=generator)


def adapter(**functions: Callable[..., Any]) -> EngineAdapter:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))
    model = FabricModel(
        net, lambda: (SET, None), nn.functional.cross_entropy, torch.optim.Adam(net.parameters()), **functions
    )
    trainable = model._trainable
    samples = trainable.samples(SET, None, 0, None)
    samples.units_per_batch(4)
    return trainable.adapter(samples, on_device=False)


def test_a_step_of_ones_own_has_the_bits_of_the_platforms() -> None:
    usual, own = adapter(), adapter(fn_step_train=own_step)
    for seed in range(3):
        values = [step(each, batch(seed), batch(seed + 10, rows=2)) for each in (usual, own)]
        assert values[0]["loss"] == values[1]["loss"]
        assert values[0]["accuracy"] == pytest.approx(values[1]["accuracy"])
    assert usual.digest() == own.digest()


def evaluated(each: EngineAdapter, given: Batch) -> dict[str, float]:
    local = torch.zeros(each.size(StepKind.VALIDATE), dtype=each.dtype)
    each.evaluate(given, len(given[1]), 0, local)
    return each.values(each.sums(StepKind.VALIDATE, local))


def test_a_test_of_ones_own_gives_loss_and_accuracy_of_what_the_model_returned() -> None:
    usual, own = adapter(), adapter(fn_test=own_test)
    assert evaluated(own, batch(5)) == evaluated(usual, batch(5))
    assert own.digest() == usual.digest()


def test_a_test_changes_neither_buffers_nor_gradients() -> None:
    def careless(model: Any, test_iter: Any, fn_args: Any) -> float:
        model.train()
        return own_test(model, test_iter, fn_args)

    own = adapter(fn_test=careless)
    before = own.digest()
    evaluated(own, batch(5))
    assert own.digest() == before


def test_a_test_that_shows_no_outputs_has_no_accuracy() -> None:
    own = adapter(fn_test=lambda model, test_iter, fn_args: 2.5)
    assert evaluated(own, batch(5)) == {"loss": 2.5}


def test_one_function_alone_leaves_the_other_to_the_platform() -> None:
    usual = adapter()
    step(usual, batch(1))
    tested, stepped = adapter(fn_test=own_test), adapter(fn_step_train=own_step)
    step(tested, batch(1))
    step(stepped, batch(1))
    assert tested.digest() == stepped.digest() == usual.digest()
    assert evaluated(stepped, batch(2)) == evaluated(usual, batch(2))


def test_the_accuracy_is_in_percent_as_wmlas_loggers_take_it() -> None:
    found: list[float] = []

    def looking(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> tuple[Any, Any]:
        accuracy, loss = own_step(model, data, eva, train_loader, fn_args)
        found.append(accuracy)
        return torch.tensor(accuracy), loss

    values = step(adapter(fn_step_train=looking), batch(1))
    assert found[0] == 100 * values["accuracy"] > 0


def test_the_train_loader_knows_the_training_set_and_gives_no_batches() -> None:
    lengths: list[Any] = []

    def asking(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> tuple[Any, Any]:
        lengths.extend((len(train_loader), len(train_loader.dataset), fn_args))
        with pytest.raises(UsageError, match="fn_step_train: iterates over train_loader"):
            iter(train_loader)
        return own_step(model, data, eva, train_loader, fn_args)

    step(adapter(fn_step_train=asking), batch(1))
    assert lengths[:3] == [3, 10, {}]


def test_the_model_has_its_own_attributes() -> None:
    def looking(model: Any, data: Any, eva: Any, train_loader: Any, fn_args: Any) -> tuple[Any, Any]:
        assert model.training and len(list(model.parameters())) == 6
        return own_step(model, data, eva, train_loader, fn_args)

    step(adapter(fn_step_train=looking), batch(1))


def test_a_function_may_keep_a_copy_of_the_model() -> None:
    copies: list[Any] = []

    def copying(model: Any, *given: Any) -> tuple[Any, Any]:
        copies.append(copy.deepcopy(model))
        return own_step(model, *given)

    step(adapter(fn_step_train=copying), batch(1))
    assert copies[0](batch(1)[0]).shape == (4, 4)


def stepping(model: Any, data: Any, *more: Any) -> tuple[Any, Any]:
    found = own_step(model, data, *more)
    model.get_optimizer().step()
    return found


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (stepping, r"fn_step_train: calls optimizer.step\(\)"),
        (lambda model, data, *more: own_step(model, data, *more)[1], "fn_step_train: returned Tensor, takes a pair"),
        (lambda *given: None, "fn_step_train: returned NoneType, takes a pair"),
    ],
)
def test_what_a_function_must_not_do_is_named(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        step(adapter(fn_step_train=function), batch(1))


def test_after_a_function_the_platform_steps_as_ever() -> None:
    own = adapter(fn_step_train=own_step)
    before = own.digest()
    step(own, batch(1))
    assert own.digest() != before
