"""A scheduler beside a rule: each sees the learning rates that are its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from edt_runner.frameworks.computing import Asked
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.pytorch.optimizers import rescaled
from edt_runner.frameworks.trainable import scaled
from edt_runner.launch.user_loop_adapter import UserLoopTrainable, not_called
from edt_runner.launch.user_loop_asks import Asks
from edt_runner.lr_scaling.rules import by_name
from edt_runner.lr_scaling.update import Scaling
from edt_runner.schedule import StepKind

RATE, GAMMA, SAMPLES = 0.1, 0.7, 10


def rates_of(batches: list[int], *, asked_for: bool, rule: bool) -> list[float]:
    """Learning rates of updates of so many samples, at a reference of two.

    Args:
        batches: samples of the updates.
        asked_for: the loop's body steps the scheduler; else it is given as lr_scheduler=.
        rule: whether there is a learning-rate rule.
    """
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, GAMMA)
    trainable = UserLoopTrainable(model, (optimizer,), Asked(not_called), {}, name="loader")
    options = StepOptions(lr_scheduler=None if asked_for else [scheduler], lr_scheduler_interval="step")
    adapter = inner = trainable.adapter_on(torch.device("cpu"), options)
    if rule:
        adapter = scaled(inner, by_name("linear"), reference=2, micro_batch=2, epoch_samples=SAMPLES)
    found = []
    for batch in batches:
        reduced = torch.zeros(adapter.size(StepKind.TRAIN))
        body = reduced[: inner.size(StepKind.TRAIN)]
        own = inner._plain(body)
        flat = inner.layout.sections(own)
        flat.gradients[:], flat.present[:], flat.active[:], flat.sums[0] = 1.0, 1.0, 1.0, batch
        inner._coding.write(Asks((0,), moves=((0, 1),) if asked_for else ()), body[len(own) :])
        before = model.weight.detach().clone()
        adapter.apply(reduced)
        found.append(float((before - model.weight.detach())[0, 0]))
    return found


@pytest.mark.parametrize("asked_for", [True, False])
def test_a_scheduler_goes_on_from_the_users_learning_rate_under_a_rule(asked_for: bool) -> None:
    found = rates_of([4, 6, 2, 4], asked_for=asked_for, rule=True)
    assert found == pytest.approx([RATE * GAMMA**step * k for step, k in enumerate([2, 3, 1, 2])], rel=1e-5)


@pytest.mark.parametrize("asked_for", [True, False])
def test_a_scheduler_moves_once_after_each_update(asked_for: bool) -> None:
    found = rates_of([4, 4, 2], asked_for=asked_for, rule=False)
    assert found == pytest.approx([RATE * GAMMA**step for step in range(3)], rel=1e-5)


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
