"""``runai.elastic.torch.loader`` in a plain process: the same loop, with the weights of full batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import runai.elastic.torch as elastic_torch
import runai.ga.torch.optim as ga
from edt_runner.errors import UsageError
from runai import elastic

SAMPLES, FEATURES = 37, 3
GENERATOR = np.random.default_rng(3)
INPUTS = GENERATOR.standard_normal((SAMPLES, FEATURES))
TARGETS = INPUTS @ np.array([1.0, -2.0, 0.5]) + 0.1 * GENERATOR.standard_normal(SAMPLES)
RATE, MOMENTUM, EPOCHS = 0.05, 0.9, 3
Loop = Callable[..., Any]


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("EDT_CPU_SLOTS", raising=False)
    monkeypatch.setenv("EDT_DEVICES", "cpu")
    elastic_torch.init(10, 4, gpus=1)
    yield
    for name in (*elastic.ATTRIBUTES, "_max_gpu_batch_size"):
        vars(elastic).pop(name, None)


def full_batches(rate: Callable[[int], float] = lambda update: RATE, *, sums: bool = False) -> np.ndarray:
    """Weights of a linear model after gradient descent with momentum on whole batches of ten, in NumPy."""
    weights, velocity, update = np.zeros(FEATURES), np.zeros(FEATURES), 0
    for _ in range(EPOCHS):
        for start in range(0, SAMPLES, 10):
            x, y = INPUTS[start : start + 10], TARGETS[start : start + 10]
            gradient = 2 * (x @ weights - y) @ x / (1 if sums else len(x))
            velocity = MOMENTUM * velocity + gradient
            weights = weights - rate(update) * velocity
            update += 1
    return weights


def dataset() -> TensorDataset:
    return TensorDataset(torch.from_numpy(INPUTS), torch.from_numpy(TARGETS))


def linear() -> nn.Linear:
    model = nn.Linear(FEATURES, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    return model


def sgd(model: nn.Module, **options: Any) -> Any:
    return ga.SGD(elastic.steps, model.parameters(), lr=RATE, momentum=MOMENTUM, **options)


def train(model: nn.Module, optimizer: Any, *, reduction: str = "mean", **options: Any) -> Any:
    loader = elastic_torch.loader(dataset(), model, optimizer, EPOCHS, **{"shuffle": False, **options})
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs).squeeze(1), targets, reduction=reduction)
        loss.backward()
        loader.report(loss)
        optimizer.step()
    return loader


def weights_of(model: nn.Module) -> np.ndarray:
    return next(model.parameters()).detach().numpy().reshape(-1)


# ── the arithmetic ────────────────────────────────────────────────────────────────────────────────────────────
def test_uneven_micro_batches_give_the_weights_of_full_batches() -> None:
    """Ten samples as 4, 3 and 3, and the seven that are left over of 37 as 3, 2 and 2."""
    model = linear()
    loader = train(model, sgd(model))
    np.testing.assert_allclose(weights_of(model), full_batches(), rtol=1e-12)
    assert (loader.epoch, loader.step) == (EPOCHS, EPOCHS * 4)


def test_an_optimizer_of_torchs_own_does_as_well() -> None:
    model = linear()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    train(model, optimizer)
    np.testing.assert_allclose(weights_of(model), full_batches(), rtol=1e-12)


def test_gradients_of_sums_are_added_up() -> None:
    model = linear()
    optimizer = ga.SGD(elastic.steps, model.parameters(), lr=RATE / 10, momentum=MOMENTUM, reduction="sum")
    train(model, optimizer, reduction="sum")
    expected = full_batches(lambda update: RATE / 10, sums=True)
    np.testing.assert_allclose(weights_of(model), expected, rtol=1e-12)


@pytest.mark.parametrize("most", [1, 3, 10, 64])
def test_the_most_that_a_gpu_holds_changes_nothing(most: int) -> None:
    elastic_torch.init(10, most, gpus=1)
    model = linear()
    train(model, sgd(model))
    np.testing.assert_allclose(weights_of(model), full_batches(), rtol=1e-12)


def test_zero_grad_may_come_last_and_a_closure_may_compute() -> None:
    model = linear()
    optimizer, losses = sgd(model), []
    for inputs, targets in elastic_torch.loader(dataset(), model, optimizer, EPOCHS, shuffle=False):

        def closure(inputs: Any = inputs, targets: Any = targets) -> Any:
            loss = nn.functional.mse_loss(model(inputs).squeeze(1), targets)
            loss.backward()
            return loss

        losses.append(float(optimizer.step(closure).detach()))
        optimizer.zero_grad()
    np.testing.assert_allclose(weights_of(model), full_batches(), rtol=1e-12)
    assert len(losses) == EPOCHS * 4 * 3


@pytest.mark.parametrize("interval, every", [("step", 1), ("epoch", 4)])
def test_learning_rates_move_with_updates_or_epochs(interval: str, every: int) -> None:
    model = linear()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    train(model, optimizer, lr_scheduler=scheduler, lr_scheduler_interval=interval)
    expected = full_batches(lambda update: RATE * 0.7 ** (update // every))
    np.testing.assert_allclose(weights_of(model), expected, rtol=1e-12)


# ── what the loop sees ────────────────────────────────────────────────────────────────────────────────────────
def test_every_sample_comes_once_an_epoch_in_another_order_each_time() -> None:
    model = linear()
    optimizer, epochs = sgd(model), [[], [], []]  # type: tuple[Any, list[list[float]]]
    loader = elastic_torch.loader(dataset(), model, optimizer, EPOCHS, seed=5)
    for inputs, targets in loader:
        assert len(inputs) <= elastic.batch_size == 4
        assert (elastic.gpus, elastic.steps, elastic.sizes, elastic.global_batch_size) == (1, 3, (4, 3, 3), 10)
        assert loader.step // 4 == loader.epoch
        epochs[loader.epoch] += targets.tolist()
        nn.functional.mse_loss(model(inputs).squeeze(1), targets).backward()
        optimizer.step()
    assert all(sorted(epoch) == sorted(TARGETS) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_after_the_loop_the_optimizer_is_itself_again() -> None:
    model = linear()
    optimizers = [sgd(model), torch.optim.SGD(model.parameters(), lr=RATE)]
    for optimizer in optimizers:
        train(model, optimizer)
    before = weights_of(model).copy()
    nn.functional.mse_loss(model(torch.ones(1, FEATURES, dtype=torch.float64)), torch.zeros(1, 1).double()).backward()
    optimizers[1].step()
    assert (weights_of(model) != before).all()
    assert "step" not in vars(optimizers[1]) and optimizers[0].runai.driver is None
    assert optimizers[0].runai.step == EPOCHS * 4 * 3


def test_a_loop_that_is_left_ends_with_its_last_whole_update() -> None:
    model = linear()
    optimizer, updates = sgd(model), 0
    loader = elastic_torch.loader(dataset(), model, optimizer, EPOCHS, shuffle=False)
    for inputs, targets in loader:
        updates = loader.step
        if updates == 2:
            break
        nn.functional.mse_loss(model(inputs).squeeze(1), targets).backward()
        optimizer.step()
    assert updates == 2 and optimizer.runai.driver is None


# ── misuse ────────────────────────────────────────────────────────────────────────────────────────────────────
def never_steps(model: nn.Module, optimizer: Any, inputs: Any) -> None:
    model(inputs).mean().backward()


def steps_twice(model: nn.Module, optimizer: Any, inputs: Any) -> None:
    model(inputs).mean().backward()
    optimizer.step()
    optimizer.step()


def no_backward(model: nn.Module, optimizer: Any, inputs: Any) -> None:
    model(inputs).mean()
    optimizer.step()


def clears_too_early(model: nn.Module, optimizer: Any, inputs: Any) -> None:
    model(inputs).mean().backward()
    optimizer.zero_grad()
    optimizer.step()


def moves_a_rate(model: nn.Module, optimizer: Any, inputs: Any) -> None:
    model(inputs).mean().backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] *= 0.5


def clips_weights(model: nn.Module, optimizer: Any, inputs: Any) -> None:
    model(inputs).mean().backward()
    optimizer.step()
    with torch.no_grad():
        next(model.parameters()).clamp_(-1, 1)


@pytest.mark.parametrize(
    "body, error",
    [
        (never_steps, "had not called optimizer.step"),
        (steps_twice, "called twice for one batch"),
        (no_backward, "no gradients at optimizer.step"),
        (clears_too_early, "no gradients at optimizer.step"),
        (moves_a_rate, "lr_scheduler="),
        (clips_weights, "changed parameters"),
    ],
)
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_body_that_cannot_be_right_is_told_so(body: Callable[..., None], error: str, wrapped: bool) -> None:
    model = linear()
    optimizer = sgd(model) if wrapped else torch.optim.SGD(model.parameters(), lr=RATE)
    with pytest.raises(UsageError, match=error):
        for inputs, _ in elastic_torch.loader(dataset(), model, optimizer):
            body(model, optimizer, inputs)


def test_a_loop_goes_over_all_epochs_at_once() -> None:
    model = linear()
    loader = train(model, sgd(model))
    with pytest.raises(UsageError, match="second time"):
        next(iter(loader))


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"dataset": iter([])}, "dataset: got .*, takes a map-style"),
        ({"dataset": []}, "dataset"),
        ({"model": 3}, "model: got 3, takes a torch.nn.Module"),
        ({"optimizer": "sgd"}, "optimizer: got 'sgd'"),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1)}, "parameters of the model"),
        ({"epochs": 0}, "epochs: got 0"),
        ({"seed": -1}, "seed: got -1"),
        ({"reduction": "some"}, "reduction: got 'some'"),
        ({"lr_scheduler": 0.1}, "lr_scheduler: got 0.1"),
        ({"lr_scheduler_interval": "day"}, "lr_scheduler_interval: got 'day'"),
        ({"num_workers": -1}, "num_workers: got -1"),
        ({"recovery_interval": 0}, "recovery_interval: got 0"),
        ({"compare_interval": -1}, "compare_interval: got -1"),
        ({"on_mismatch": "no"}, "on_mismatch: got 'no', takes 'mark', 'stop' or 'restore'"),
        ({"require_exact": 1}, "require_exact: got 1"),
        ({"require_exact": True, "reduction": "fast"}, "require_exact: got True, takes False with reduction='fast'"),
        ({"worker_logger_callback": 1}, "worker_logger_callback: got 1"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, Any], error: str) -> None:
    model = linear()
    given = {"dataset": dataset(), "model": model, "optimizer": sgd(model), **changes}
    with pytest.raises(UsageError, match=error):
        elastic_torch.loader(**given)


def test_a_loader_before_init_says_what_is_missing() -> None:
    for name in (*elastic.ATTRIBUTES, "_max_gpu_batch_size"):
        vars(elastic).pop(name, None)
    model = nn.Linear(1, 1)
    with pytest.raises(AttributeError, match=r"init\("):
        elastic_torch.loader(dataset(), model, torch.optim.SGD(model.parameters(), lr=1))


def test_what_is_reported_has_a_name_that_was_given() -> None:
    model = linear()
    optimizer = sgd(model)
    loader = elastic_torch.loader(dataset(), model, optimizer, metrics=["error"])
    with pytest.raises(UsageError, match="outside of the loop"):
        loader.report(1.0)
    for _ in loader:
        with pytest.raises(UsageError, match="takes what metrics= names: error"):
            loader.report(1.0, accuracy=1.0)
        break
