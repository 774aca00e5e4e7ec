"""A scheduler beside a rule: each sees the learning rates that are its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from edt_runner.frameworks.pytorch.optimizers import rescaled
from edt_runner.frameworks.trainable import scaled
from edt_runner.launch.user_loop_adapter import Rates, UserLoopTrainable, not_called
from edt_runner.lr_scaling.rules import by_name
from edt_runner.lr_scaling.update import Scaling
from edt_runner.schedule import StepKind

RATE, GAMMA, SAMPLES = 0.1, 0.7, 10


def rates_of(batches: list[int], *, epoch_samples: int, rule: bool) -> list[float]:
    """Learning rates of updates of so many samples, at a reference of two."""
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    rates = Rates(torch.optim.lr_scheduler.ExponentialLR(optimizer, GAMMA), epoch_samples)
    trainable = UserLoopTrainable(
        model, optimizer, not_called, {}, averages=True, rates=rates, run_body=lambda run: None, name="loader"
    )
    adapter = inner = trainable.adapter_on(torch.device("cpu"))
    if rule:
        adapter = scaled(inner, by_name("linear"), reference=2, micro_batch=2, epoch_samples=SAMPLES)
    found = []
    for batch in batches:
        reduced = torch.zeros(adapter.size(StepKind.TRAIN))
        body = reduced[: inner.size(StepKind.TRAIN)]
        body[: inner.gradient_size], body[inner.gradient_size], body[-inner.width] = 1.0, 1.0, batch
        before = model.weight.detach().clone()
        adapter.apply(reduced)
        found.append(float((before - model.weight.detach())[0, 0]))
    return found


def test_a_scheduler_goes_on_from_the_users_learning_rate_under_a_rule() -> None:
    found = rates_of([4, 6, 2, 4], epoch_samples=0, rule=True)
    assert found == pytest.approx([RATE * GAMMA**step * k for step, k in enumerate([2, 3, 1, 2])], rel=1e-5)


@pytest.mark.parametrize("rule", [False, True])
def test_passes_are_counted_in_samples_where_updates_differ_in_them(rule: bool) -> None:
    """As they do where the sizes are those of a trace."""
    found = rates_of([4, 4, 2, 6, 4, 2], epoch_samples=SAMPLES, rule=rule)
    scale = [2, 2, 1, 3, 2, 1] if rule else [1] * 6
    expected = [RATE * GAMMA**epoch * k for epoch, k in zip([0, 0, 0, 1, 1, 2], scale, strict=True)]
    assert found == pytest.approx(expected, rel=1e-5)


def test_one_that_comes_later_takes_the_steps_that_it_has_missed() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=RATE)
    rates = Rates(torch.optim.lr_scheduler.ExponentialLR(optimizer, GAMMA), SAMPLES)
    rates.go_to(2 * SAMPLES + 5)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(RATE * GAMMA**2)
    rates.updated(5)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(RATE * GAMMA**3)


def test_a_scheduler_that_a_hook_moves_goes_on_from_the_users_learning_rate_too() -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, GAMMA)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())
    rates = []
    for step in range(3):
        model.weight.grad = torch.ones_like(model.weight)
        with rescaled(optimizer, Scaling(lr=4.0)) as taken:
            optimizer.step()
        rates += taken
        assert optimizer.param_groups[0]["lr"] == pytest.approx(RATE * GAMMA ** (step + 1))
    assert rates == pytest.approx([4 * RATE * GAMMA**step for step in range(3)])
    assert len(optimizer._optimizer_step_post_hooks) == 1
