"""``runai.ga.torch.optim``: what torch does with optimizers, it does with one that accumulates."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from edt_runner.errors import UsageError
from runai.ga.torch import optim
from support.accumulation import call, one


# ── what an optimizer brings along ────────────────────────────────────────────────────────────────────────────────
def test_c1_22_momentum_from_before_the_wrapping_is_kept() -> None:
    weight, plain = one(), one()
    inner, other = (torch.optim.SGD([each], lr=1.0, momentum=0.5) for each in (weight, plain))
    for optimizer, each in ((inner, weight), (other, plain)):
        call(optimizer, each)
    accumulating = optim.Optimizer(inner, 2)
    call(accumulating, weight)
    call(accumulating, weight)
    assert weight.item() == call(other, plain) == -2.5


class Particular(torch.optim.Optimizer):
    """Its constructor takes more than parameters."""

    def __init__(self, params: Any, rate: float, *, sign: float) -> None:
        self.sign = sign
        super().__init__(params, {"rate": rate})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=self.sign * group["rate"])


def test_c1_22_an_optimizer_whose_constructor_takes_more_works() -> None:
    weight = one()
    optimizer = optim.Optimizer(Particular([weight], 2.0, sign=1.0), 2)
    assert [call(optimizer, weight) for _ in range(4)] == [0, 2, 2, 4]


def test_c1_22_a_new_group_has_the_wrapped_optimizers_settings() -> None:
    weight, late = one(), one()
    optimizer = optim.Optimizer(torch.optim.SGD([weight], lr=0.5, momentum=0.9), 2)
    call(optimizer, weight)
    optimizer.add_param_group({"params": [late]})  # within a cycle
    assert [optimizer.param_groups[1][name] for name in ("lr", "momentum")] == [0.5, 0.9]
    optimizer.zero_grad()
    (weight + 2 * late).sum().backward()
    optimizer.step()
    assert (weight.item(), late.item()) == (-0.5, -0.5)


# ── what torch does with optimizers ───────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("to_none", [True, False])
def test_c1_23_zero_grad_may_keep_the_tensors(to_none: bool) -> None:
    weight = one()
    optimizer = optim.SGD(2, [weight], lr=1.0, momentum=0.5)
    for _ in range(4):
        optimizer.zero_grad(set_to_none=to_none)
        assert weight.grad is None or not to_none
        weight.sum().backward()
        place = weight.grad
        optimizer.step()
        assert to_none or weight.grad is place
    assert weight.item() == -1 - 1.5


def test_c1_23_a_grad_scaler_divides_every_micro_batch_by_its_scale_once() -> None:
    weight = one()
    optimizer = optim.SGD(2, [weight], lr=1.0, reduction="sum")
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)  # the scale doubles after each
    for slope in (3.0, 3.0, 1.0, 2.0):
        optimizer.zero_grad()
        scaler.scale(slope * weight).sum().backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert weight.item() == -9


def test_c1_23_a_micro_batch_that_overflows_is_not_counted_nor_left_in_the_gradients() -> None:
    weight = one()
    optimizer = optim.SGD(2, [weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for slope in (3.0, float("inf"), 5.0):
        optimizer.zero_grad()
        scaler.scale(slope * weight).sum().backward()
        scaler.step(optimizer, samples=1)
        scaler.update()
    assert (weight.item(), optimizer.runai.step) == (-4, 2)


def test_c1_23_a_fused_optimizer_leaves_the_unscaling_to_the_scaler() -> None:
    weight = one()
    optimizer = optim.Optimizer(torch.optim.SGD([weight], lr=1.0, fused=True), 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for slope in (3.0, 5.0):
        optimizer.zero_grad()
        scaler.scale(slope * weight).sum().backward()
        scaler.step(optimizer)
        scaler.update()
    assert weight.item() == -4


@pytest.mark.parametrize("before", [False, True], ids=["scheduler on the wrapper", "scheduler from before"])
def test_c1_23_a_scheduler_changes_the_learning_rate_of_updates(before: bool) -> None:
    weight = one()
    inner = torch.optim.SGD([weight], lr=1.0)
    early = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.1) if before else None
    optimizer = optim.Optimizer(inner, 2)
    scheduler = early or torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing about a step that was not called
        for _ in range(2):
            call(optimizer, weight)
            call(optimizer, weight)
            scheduler.step()
    assert weight.item() == pytest.approx(-1.1)
    assert scheduler.get_last_lr() == pytest.approx([0.01])


@pytest.mark.parametrize("steps", [0, -1, 1.5, "2", True, None], ids=repr)
def test_c1_23_steps_that_are_no_positive_whole_number_are_refused_at_once(steps: Any) -> None:
    for make in (
        lambda: optim.SGD(steps, [one()], lr=1.0),
        lambda: optim.Optimizer(torch.optim.SGD([one()], lr=1.0), steps),
    ):
        with pytest.raises(UsageError, match=f"steps: got {steps!r}, takes a whole number, at least 1"):
            make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: optim.Optimizer("sgd", 2), "optimizer: got 'sgd', takes a torch.optim.Optimizer"),  # type: ignore[arg-type]
        (lambda: optim.Optimizer(optim.SGD(2, [one()], lr=1.0), 2), "accumulates already"),
        (lambda: optim.Optimizer(torch.optim.LBFGS([one()]), 2), "accumulate in its closure"),
        (lambda: optim.SGD(2, [one()], lr=1.0, reduction="avg"), "reduction: got 'avg', takes one of 'mean', 'sum'"),
        (lambda: optim.SGD(2, [one()], lr=1.0, sizes=[3]), r"sizes: got \[3\], takes as many numbers"),
        (lambda: optim.SGD(1, [one()], lr=1.0, sizes=[0]), "sizes: got 0, takes a whole number"),
    ],
)
def test_a_wrong_argument_is_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()


@pytest.mark.parametrize("kind", ["as built", "after loading", "as copied", "as copied into a fresh process"])
def test_step_hooks_run_once_at_an_update_with_the_whole_gradient(kind: str) -> None:
    optimizer: Any = optim.Optimizer(Particular([one()], 1.0, sign=-1.0), 2)
    if kind == "after loading":
        optimizer.load_state_dict(optimizer.state_dict())
    if kind.startswith("as copied"):
        hooked: Any = Particular.step
        if "fresh" in kind:  # where no constructor has given the class its hooks
            Particular.step = hooked.__wrapped__  # type: ignore[method-assign]
        optimizer = copy.deepcopy(optimizer)
        optimizer.sign = -1.0
    (weight,) = optimizer.param_groups[0]["params"]
    seen: list[float] = []

    def clip(*_: object) -> None:
        seen.append(nn.utils.clip_grad_norm_([weight], 1.0).item())

    optimizer.register_step_pre_hook(clip)
    for slope in (2.0, 4.0):
        call(optimizer, weight, slope)
    assert seen == [3.0]
    assert weight.item() == pytest.approx(-1.0)


def test_an_update_may_be_made_before_its_last_micro_batch() -> None:
    weight = one()
    optimizer = optim.SGD(4, [weight], lr=1.0)
    weight.sum().backward()
    optimizer.micro_step(None, None, last=True)
    assert (weight.item(), optimizer.runai.step) == (-1, 4)


def test_the_number_of_steps_may_change_between_updates() -> None:
    weight = one()
    optimizer = optim.SGD(2, [weight], lr=1.0)
    for _ in range(4):
        call(optimizer, weight)
    optimizer.runai.steps = 3
    assert optimizer.runai.step == 6
    assert [call(optimizer, weight) for _ in range(3)] == [-2, -2, -3]
    call(optimizer, weight)
    with pytest.raises(UsageError, match="not after 1 of 3"):
        optimizer.runai.steps = 2
