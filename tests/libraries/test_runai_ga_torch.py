"""``runai.ga.torch.optim``: several micro-batches, one update; what an update is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edt_runner.errors import UsageError
from runai.ga.torch import optim
from support.accumulation import call, one

X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
Y = np.array([1.0, 2.0, 3.0, 4.0])
NAMES = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "SGD", "Rprop", "RMSprop")
NEWER = ("NAdam", "RAdam", *(name for name in ("Adafactor", "Muon") if hasattr(torch.optim, name)))


# ── when ──────────────────────────────────────────────────────────────────────────────────────────────────────────
class Watched(torch.optim.Optimizer):
    """It writes down where the counter stands when it is asked to do something."""

    def __init__(self, params: Any) -> None:
        self.stepped: list[int] = []
        self.cleared: list[int] = []
        super().__init__(params, {})

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        self.stepped.append(self.runai.step)  # type: ignore[attr-defined]
        return None if closure is None else closure()

    def zero_grad(self) -> None:  # type: ignore[override]
        self.cleared.append(self.runai.step)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("steps", "calls"), [(4, 8), (3, 10), (1, 3), (5, 4)])
def test_c1_16_only_the_last_call_of_a_cycle_updates_and_only_the_first_clears(steps: int, calls: int) -> None:
    optimizer: Any = optim.Optimizer(Watched([one()]), steps)
    for number in range(calls):
        assert (optimizer.runai.steps, optimizer.runai.step) == (steps, number)
        optimizer.zero_grad()
        assert optimizer.step() is None
    assert optimizer.stepped == list(range(steps - 1, calls, steps))
    assert optimizer.cleared == list(range(0, calls, steps))


def test_c1_16_of_eight_calls_at_four_steps_the_fourth_and_the_eighth_update() -> None:
    weight = one()
    optimizer = optim.SGD(4, [weight], lr=1.0, reduction="sum")
    assert [call(optimizer, weight) for _ in range(8)] == [0, 0, 0, -4, -4, -4, -4, -8]


@pytest.mark.parametrize("clears_last", [False, True])
def test_c1_16_the_loop_may_clear_first_or_last(clears_last: bool) -> None:
    weight = one()
    optimizer = optim.SGD(3, [weight], lr=1.0, reduction="sum")
    seen = []
    for _ in range(7):
        if not clears_last:
            optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
        if clears_last:
            optimizer.zero_grad()
        seen.append(weight.item())
    assert seen == [0, 0, -3, -3, -3, -6, -6]


def test_c1_16_a_loop_that_clears_only_where_a_cycle_begins_counts_each_gradient_once() -> None:
    weight = one()
    optimizer = optim.SGD(3, [weight], lr=1.0, reduction="sum")
    for number in range(6):
        if number % 3 == 0:
            optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
    assert weight.item() == -6


def test_c1_17_a_closure_is_called_once_each_time_and_its_loss_returned() -> None:
    weight, calls = one(), []
    optimizer = optim.SGD(3, [weight], lr=1.0)

    def closure() -> float:
        optimizer.zero_grad()
        weight.sum().backward()  # gradients are on, whatever they are outside
        calls.append(len(calls))
        return len(calls) / 10

    with torch.no_grad():
        returned = [optimizer.step(closure) for _ in range(6)]
    assert returned == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert (len(calls), weight.item()) == (6, -2)


class Insistent(torch.optim.SGD):
    """It cannot do without a closure."""

    def step(self, closure: Callable[[], float]) -> float:  # type: ignore[override]
        super().step()
        return closure()


def test_c1_17_an_optimizer_that_needs_a_closure_is_given_one_and_gradients_are_computed_once() -> None:
    weight = one()
    optimizer = optim.Optimizer(Insistent([weight], lr=1.0), 2)
    losses = iter([0.5, 0.25])

    def closure() -> float:
        weight.sum().backward()
        return next(losses)

    assert [optimizer.step(closure), optimizer.step(closure)] == [0.5, 0.25]
    assert weight.item() == -1


# ── what ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def after_one_update(steps: int, loss: str, reduction: str) -> list[float]:
    weight = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    optimizer = optim.SGD(steps, [weight], lr=0.001, reduction=reduction)
    for x, y in zip(np.split(X, steps), np.split(Y, steps), strict=True):
        optimizer.zero_grad()
        functional.mse_loss(torch.tensor(x) @ weight, torch.tensor(y), reduction=loss).backward()
        optimizer.step()
    return weight.tolist()


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_c1_18_a_sum_loss_with_summing_is_the_full_batch(steps: int) -> None:
    assert after_one_update(steps, "sum", "sum") == pytest.approx([1.332, -1.6], abs=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_c1_19_a_mean_loss_with_averaging_is_the_full_batch(steps: int) -> None:
    assert after_one_update(steps, "mean", "mean") == pytest.approx([1.083, -1.9], abs=1e-12)


def test_c1_19_the_originals_summing_of_mean_losses_is_still_to_be_had() -> None:
    assert after_one_update(4, "mean", "sum") == pytest.approx([1.332, -1.6], abs=1e-12)


def test_c1_19_averaging_is_the_default() -> None:
    weight = one()
    optimizer = optim.SGD(4, [weight], lr=1.0)
    assert [call(optimizer, weight) for _ in range(4)][-1] == -1


def layer() -> nn.Linear:
    generator = torch.Generator().manual_seed(20)
    made = nn.Linear(3, 3, bias=False, dtype=torch.float64)
    with torch.no_grad():
        made.weight.copy_(torch.randn(3, 3, generator=generator))
    return made


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(21)
    x, y = torch.randn(2, 24, 3, generator=generator, dtype=torch.float64)
    return x, y


def fitted(make: Callable[[nn.Linear], Any], cycle: list[int], *, loss: str = "mean", **options: Any) -> Tensor:
    """Three updates with micro-batches of ``cycle`` samples each."""
    model, (x, y) = layer(), batch()
    optimizer = make(model)
    for _ in range(3):
        for inputs, targets in zip(x.split(cycle), y.split(cycle), strict=True):
            optimizer.zero_grad()
            functional.mse_loss(model(inputs), targets, reduction=loss).backward()
            optimizer.step(**{name: value(inputs) for name, value in options.items()})
    return model.weight.detach()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", [*NAMES, *NEWER])
def test_c1_20_each_name_and_its_wrapper_are_the_full_batch(name: str, reduction: str) -> None:
    kind, named = getattr(torch.optim, name), getattr(optim, name)
    full = fitted(lambda model: kind(model.parameters(), lr=0.01), [24], loss=reduction)
    makers = [
        lambda model: named(4, model.parameters(), lr=0.01, reduction=reduction),
        lambda model: named(steps=4, params=model.parameters(), lr=0.01, reduction=reduction),
        lambda model: optim.Optimizer(kind(model.parameters(), lr=0.01), 4, reduction=reduction),
    ]
    for make in makers:
        optimizer = make(layer())
        assert type(optimizer).__name__ == name
        assert isinstance(optimizer, kind)
        torch.testing.assert_close(fitted(make, [6] * 4, loss=reduction), full, rtol=0, atol=1e-9)


def test_c1_20_adam_in_four_steps_is_adam_written_in_numpy() -> None:
    x, y = (tensor.numpy() for tensor in batch())
    weight = layer().weight.detach().numpy().copy()
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    for step in range(1, 4):
        gradient = 2 * (x @ weight.T - y).T @ x / y.size
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        weight -= 0.01 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    ours = fitted(lambda model: optim.Adam(4, model.parameters(), lr=0.01), [6] * 4)
    np.testing.assert_allclose(ours.numpy(), weight, rtol=0, atol=1e-12)


def test_a_sparse_gradient_is_accumulated() -> None:
    def trained(steps: int) -> Tensor:
        table = nn.Embedding(6, 2, sparse=True, _weight=torch.arange(12.0).view(6, 2))
        optimizer = optim.SparseAdam(steps, list(table.parameters()), lr=0.1)
        for rows in torch.tensor([1, 2, 2, 5]).chunk(steps):
            optimizer.zero_grad()
            table(rows).pow(2).mean().backward()
            optimizer.step()
        return table.weight.detach()

    torch.testing.assert_close(trained(2), trained(1))


@pytest.mark.parametrize("sizes", [[9, 8, 7], [1, 22, 1], [24], [12, 12]], ids=str)
def test_micro_batches_of_uneven_sizes_weigh_as_their_samples_do(sizes: list[int]) -> None:
    def told_before(model: nn.Linear) -> Any:
        return optim.SGD(len(sizes), model.parameters(), lr=0.1, momentum=0.9, sizes=sizes)

    def told_at_each_step(model: nn.Linear) -> Any:
        return optim.SGD(len(sizes), model.parameters(), lr=0.1, momentum=0.9)

    x, y = (tensor.numpy() for tensor in batch())
    weight, velocity = layer().weight.detach().numpy().copy(), np.zeros((3, 3))
    for _ in range(3):
        velocity = 0.9 * velocity + 2 * (x @ weight.T - y).T @ x / y.size
        weight -= 0.1 * velocity
    for ours in (fitted(told_before, sizes), fitted(told_at_each_step, sizes, samples=len)):
        np.testing.assert_allclose(ours.numpy(), weight, rtol=0, atol=1e-12)


def test_an_update_needs_all_of_its_sizes_or_none() -> None:
    weight = one()
    optimizer = optim.SGD(2, [weight], lr=1.0)
    call(optimizer, weight, samples=3)
    with pytest.raises(UsageError, match="samples: got None, takes a number of samples at each step"):
        call(optimizer, weight)


# ── tails ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_c1_24_an_incomplete_cycle_goes_on_in_the_next_epoch() -> None:
    weight = one()
    optimizer = optim.SGD(4, [weight], lr=1.0)
    assert [call(optimizer, weight, slope) for slope in (4, 4, 4, 4, 8, 8)][-1] == -4
    assert [call(optimizer, weight, slope) for slope in (0, 0)][-1] == -4 - (8 + 8) / 4


def test_c1_24_flush_updates_with_the_mean_of_what_there_is() -> None:
    weight = one()
    optimizer = optim.SGD(4, [weight], lr=1.0)
    assert not optimizer.flush()
    for slope in (1, 3):
        call(optimizer, weight, slope)
    assert optimizer.flush()
    assert weight.item() == -2
    assert (optimizer.runai.step, optimizer.flush()) == (4, False)
    for slope in (1, 2, 3, 6):
        call(optimizer, weight, slope)
    assert weight.item() == -2 - 3


def test_c1_24_flush_weighs_uneven_micro_batches_and_sums_where_it_is_asked_to() -> None:
    weight = one()
    optimizer = optim.SGD(3, [weight], lr=1.0)
    call(optimizer, weight, 1.0, samples=3)
    call(optimizer, weight, 5.0, samples=1)
    optimizer.flush()
    assert weight.item() == -2
    summing = optim.SGD(3, [weight], lr=1.0, reduction="sum")
    call(summing, weight, 1.0)
    call(summing, weight, 5.0)
    summing.flush()
    assert weight.item() == -8


def test_sizes_are_those_of_the_number_of_steps_they_were_given_for() -> None:
    weight = one()
    optimizer = optim.SGD(2, [weight], lr=1.0, sizes=[3, 1])
    optimizer.runai.steps = 3
    with pytest.raises(UsageError, match="samples: got None, takes a number of samples, now that steps are others"):
        call(optimizer, weight)
    assert [call(optimizer, weight, samples=2) for _ in range(3)][-1] == -1
