"""The optimizers by rule, in one process: updates, learning rates, states; weights against NumPy loops."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR, StepLR

import variable_batch_size as vbs
from support import regression
from support.vbs_rank import Training

CLOSE = {"rtol": 0.0, "atol": 1e-12}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Rates(torch.optim.SGD):
    """An inner optimizer that notes what it steps with."""

    def __init__(self, params: Any, **options: Any) -> None:
        super().__init__(params, **options)
        self.noted: list[tuple[float, float]] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.noted.append((self.param_groups[0]["lr"], self.param_groups[0]["weight_decay"]))
        super().step(closure)


def rates(make: Any, **options: Any) -> list[float]:
    training = Training(0, 1, make, inner=Rates, **options).finish()
    return [rate for rate, _ in training.optimizer.optimizer.noted]  # type: ignore[attr-defined]


def test_c2_03_it_answers_true_where_the_weights_have_changed() -> None:
    training = Training(0, 1).finish()
    assert ["".join("FT"[each] for each in epoch) for epoch in training.returned][:2] == [
        "FTFTFFFTFFFTFT",
        "FFTFFFFTFFFFFFFT",
    ]


def test_c2_03_the_readmes_trace() -> None:
    training = Training(0, 1, trace=[8, 12, 44])
    for _ in training.run(1):
        pass
    assert training.returned[0][:5] == [False, True, False, False, True]


def test_c2_08_the_linear_rule() -> None:
    expected = {8: 0.02, 16: 0.04, 12: 0.03, 20: 0.05, 32: 0.08, 4: 0.01, 24: 0.06, 64: 0.16}
    assert rates(vbs.LinearRuleOptimizer) == pytest.approx([expected[batch] for batch in regression.MAIN], abs=1e-15)
    assert vbs.LinearRuleOptimizer.F(0.1, 256, 128) == 0.2


def test_c2_09_the_root_rule() -> None:
    found = dict(zip(regression.MAIN, rates(vbs.RootRuleOptimizer), strict=True))
    assert found[8] == 0.02 and found[16] == pytest.approx(0.0282843, abs=5e-8)
    assert vbs.RootRuleOptimizer.F(0.1, 512, 128) == 0.2


def test_c2_10_the_recorded_weights_come_out_of_data_that_fit_them() -> None:
    """The data behind the recorded weights are not known. On others, whose targets are chosen so that the recorded
    steps at the table's learning rates are the gradient's, the same weights have to come out."""
    recorded = np.array(
        [
            [0.012012328, -0.033815061, -0.030103307],
            [0.021734913, -0.063744357, -0.055837995],
            [0.037142905, -0.125291439, -0.104173531],
            [0.063604681, -0.163201990, -0.150917364],
            [0.077865220, -0.185261576, -0.176979729],
        ]
    )
    training = Training(0, 1)
    inputs, before = training.inputs.numpy(), np.zeros(3)
    updates = regression.updates([regression.EPOCHS[0]])
    for (_, parts), rate, after in zip(updates, (0.02, 0.02, 0.04, 0.04, 0.02), recorded, strict=True):
        indices = [index for part in parts for index in part]
        rows = inputs[indices]
        wanted = rows.T @ rows @ before - len(indices) / 2 * (before - after) / rate
        training.targets[indices] = torch.tensor(np.linalg.lstsq(rows.T, wanted, rcond=None)[0])
        before = after
    for _ in training.run(1):
        pass
    np.testing.assert_allclose(training.seen, recorded, atol=1e-12)


def test_c2_12_linear_with_momentum_is_the_loop() -> None:
    training = Training(0, 1, inner_options={"momentum": 0.9}).finish()
    expected = regression.sgd(lambda batch: batch / regression.REFERENCE, momentum=0.9)
    np.testing.assert_allclose(training.seen, expected, **CLOSE)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_c2_13_root_and_constant_are_the_loop(momentum: float) -> None:
    root = Training(0, 1, vbs.RootRuleOptimizer, inner_options={"momentum": momentum}).finish()
    expected = regression.sgd(lambda batch: math.sqrt(batch / regression.REFERENCE), momentum=momentum)
    np.testing.assert_allclose(root.seen, expected, **CLOSE)
    constant = Training(0, 1, vbs.ConstantRuleOptimizer, inner_options={"momentum": momentum}).finish()
    np.testing.assert_allclose(constant.seen, regression.sgd(lambda _: 1.0, momentum=momentum), **CLOSE)
    assert vbs.ConstantOptimizer is vbs.ConstantRuleOptimizer
    assert vbs.ConstantOptimizer.F(0.1, 512, 128) == 0.1


def test_c2_14_the_linear_rule_by_sums_keeps_its_rate_and_scales_the_weight_decay() -> None:
    training = Training(0, 1, vbs.LinearRuleMomentumOptimizer, inner=Rates, inner_options={"momentum": 0.9}).finish()
    noted = training.optimizer.optimizer.noted  # type: ignore[attr-defined]
    assert {rate for rate, _ in noted} == {0.01}
    decays = dict(zip(regression.MAIN, [decay for _, decay in noted], strict=True))
    assert (decays[8], decays[16]) == (0.0002, 0.0004)
    assert training.optimizer.param_groups[0]["weight_decay"] == 0, "put back, where the original left it changed"
    assert training.optimizer.current_lr() == 0.01, "what it steps with"  # type: ignore[attr-defined]
    expected = regression.sgd(lambda _: 0.5, momentum=0.9, decay=lambda batch: 1e-4 * batch / 4, sums=True)
    np.testing.assert_allclose(training.seen, expected, **CLOSE)


def test_c2_16_between_updates_the_learning_rate_is_the_references() -> None:
    training = Training(0, 1)
    for _ in training.run():
        assert training.optimizer.get_lr() == (0.02,)


@pytest.mark.parametrize("on", ["wrapper", "inner"])
def test_c2_16_a_scheduler_on_the_wrapper_or_on_the_inner_optimizer_is_followed(on: str) -> None:
    training = Training(0, 1, inner=Rates)
    assert isinstance(training.optimizer, torch.optim.Optimizer)
    inner = training.optimizer.optimizer
    scheduler = StepLR(training.optimizer if on == "wrapper" else inner, step_size=1, gamma=0.1)
    for _ in training.run(2):
        if len(training.returned[-1]) == len(training.sampler):
            scheduler.step()
    noted = [rate for rate, _ in inner.noted]  # type: ignore[attr-defined]
    assert noted == pytest.approx([0.02, 0.02, 0.04, 0.04, 0.02, 0.003, 0.005, 0.008], abs=1e-15)
    assert training.optimizer.get_lr() == (pytest.approx(0.0002),)


def test_c2_16_schedulers_that_change_momentum_take_the_wrapper() -> None:
    training = Training(0, 1, inner_options={"momentum": 0.9})
    scheduler = OneCycleLR(training.optimizer, max_lr=0.1, total_steps=40)
    for _ in training.run(1):
        if training.returned[-1][-1]:
            scheduler.step()
    assert training.optimizer.optimizer.param_groups[0]["momentum"] < 0.95
    LambdaLR(training.optimizer, lambda epoch: 0.5)
    assert training.optimizer.get_lr()[0] == training.optimizer.optimizer.param_groups[0]["lr"]


def test_c2_30_a_state_saved_at_any_micro_step_leads_to_the_same_weights() -> None:
    training = Training(0, 1, inner_options={"momentum": 0.9})
    states = [(len(training.seen), training.save()) for _ in training.run()]
    assert len(states) == 76
    last = training.seen[-1]
    for updates, state in states:
        resumed = Training(0, 1, inner_options={"momentum": 0.9}).load(state)
        assert resumed.sampler.state_dict()["position"] == resumed.optimizer.step_index
        resumed.finish()
        assert len(resumed.seen) == 18 - updates, "the trace goes on where it was"
        assert (resumed.seen or [last])[-1] == last


@pytest.mark.parametrize(
    "make", [vbs.AdaScaleOptimizer, vbs.LinearWarmupRuleOptimizer, vbs.LegwOptimizer], ids=lambda make: make.__name__
)
def test_c2_30_what_a_rule_remembers_and_what_was_measured_go_along(make: Any) -> None:
    training = Training(0, 1, make)
    states = [training.save() for _ in training.run()]
    for state in states[4::9]:
        resumed = Training(0, 1, make).load(state).finish()
        assert resumed.seen[-1] == training.seen[-1]
        assert resumed.optimizer.details() == training.optimizer.details()


def test_c2_30_the_sampler_alone_can_be_saved_too() -> None:
    training = Training(0, 1)
    for _ in training.run():
        if len(training.seen) == 7:
            break
    state = training.sampler.state_dict()
    other = Training(0, 1)
    other.sampler.load_state_dict(state)
    other.sampler.set_epoch(1)
    other.optimizer.set_epoch(1)
    assert other.optimizer.get_bs() == 32
    assert len(other.sampler) == len(list(other.sampler)) == 8
    other.sampler.set_epoch(1)
    assert len(other.sampler) == 16, "called once more it is the epoch from its beginning"


def test_c2_30_a_plain_optimizers_state_is_taken_and_ours_by_a_plain_one() -> None:
    training = Training(0, 1, inner_options={"momentum": 0.9}).finish()
    plain = torch.optim.SGD([torch.zeros(3, dtype=torch.float64, requires_grad=True)], lr=1.0, momentum=0.9)
    plain.load_state_dict(training.optimizer.state_dict())
    assert plain.param_groups[0]["lr"] == 0.02
    plain.param_groups[0]["lr"] = 0.5
    training.optimizer.load_state_dict(plain.state_dict())
    assert training.optimizer.param_groups is training.optimizer.optimizer.param_groups
    assert training.optimizer.get_lr() == (0.5,)
    assert training.optimizer.step_index == 1


def test_a_state_of_another_rule_is_refused() -> None:
    state = Training(0, 1).optimizer.state_dict()
    with pytest.raises(ValueError, match="got the rule linear, takes root"):
        Training(0, 1, vbs.RootRuleOptimizer).optimizer.load_state_dict(state)


def test_c2_31_more_processes_than_can_add_up_are_refused() -> None:
    training = Training(0, 2)
    with pytest.raises(RuntimeError, match="deals out to 2 processes, and 1 can add up"):
        training.finish()


def test_c2_32_a_step_behind_the_epochs_last_is_an_error() -> None:
    training = Training(0, 1)
    for _ in training.run(1):
        pass
    assert training.optimizer.get_bs() == 0
    with pytest.raises(RuntimeError, match="behind the last update of epoch 0, which has 5: call set_epoch"):
        training.optimizer.step()


def test_c2_32_an_epoch_begun_within_an_update_drops_what_was_accumulated_and_says_so() -> None:
    training = Training(0, 1)
    for _ in training.run(1):
        if len(training.returned[-1]) == 6:
            break
    training.sampler.set_epoch(0)
    with pytest.warns(RuntimeWarning, match=r"set_epoch\(0\) drops 2 micro-batches of update 2 of epoch 0"):
        training.optimizer.set_epoch(0)
    assert training.weights.grad is None
    seen = len(training.seen)
    training.finish()
    weights = torch.tensor(training.seen[seen - 1], dtype=torch.float64)
    again = Training(0, 1)
    with torch.no_grad():
        again.weights.copy_(weights)
    assert again.finish().seen == training.seen[seen:], "nothing of it is left"


def test_c2_32_an_epoch_begun_in_the_sampler_alone_is_an_error() -> None:
    training = Training(0, 1)
    training.sampler.set_epoch(1)
    with pytest.raises(RuntimeError, match=r"the sampler is in epoch 1 .* the optimizer in epoch 0"):
        training.optimizer.step()


def test_without_measuring_the_weights_are_the_same_to_the_bit() -> None:
    measured, plain = Training(0, 1).finish(), Training(0, 1, measure=False).finish()
    assert measured.seen == plain.seen
    assert math.isnan(plain.optimizer.noise_scale) and measured.optimizer.noise_scale > 0


def test_the_noise_scale_is_that_of_the_gradients() -> None:
    """64 micro-batches' worth of samples a step, at weights that stay: B_simple of the whole data set."""
    training = Training(0, 1, vbs.ConstantOptimizer, trace=[64] * 200)
    training.optimizer.set_lr([0.0])
    for _ in training.run(200):
        pass
    inputs, targets = regression.data()
    each = 2 * inputs * (inputs @ np.zeros(3) - targets)[:, None]
    expected = np.trace(np.cov(each.T)) / (np.square(each.mean(0)).sum() - np.trace(np.cov(each.T)) / len(each))
    # drawn without replacement, so a little less noise is seen than 66 independent samples would show
    assert training.optimizer.noise_scale == pytest.approx(expected, rel=0.15)
    assert training.optimizer.details()["gradient_noise_scale"] == training.optimizer.noise_scale


def test_adams_square_root_changes_betas_and_epsilon_during_the_update_only() -> None:
    class Noting(torch.optim.Adam):
        noted: tuple[Any, ...] = ()

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            group = self.param_groups[0]
            self.noted = (*self.noted, (group["lr"], group["betas"], group["eps"]))
            super().step(closure)

    training = Training(0, 1, vbs.AdamSquareRootOptimizer, inner=Noting).finish()
    first = training.optimizer.optimizer.noted[2]  # type: ignore[attr-defined]
    assert first[0] == pytest.approx(0.02 * math.sqrt(2))
    assert first[1] == pytest.approx((0.8, 0.998))
    assert first[2] == pytest.approx(1e-8 / math.sqrt(2))
    group = training.optimizer.param_groups[0]
    assert (group["lr"], group["betas"], group["eps"]) == (0.02, (0.9, 0.999), 1e-8)
    with pytest.raises(ValueError, match="takes one with moving averages"):
        Training(0, 1, vbs.AdamSquareRootOptimizer)


def test_linear_warmup_and_legw_reach_their_rules_gradually() -> None:
    warmed = rates(vbs.LinearWarmupRuleOptimizer, trace=[16] * 20, warmup_epochs=2)
    assert warmed[0] == pytest.approx(0.02) and warmed[8:] == pytest.approx([0.04] * 12)
    assert warmed[:9] == pytest.approx([0.02 + 0.02 * step / 8 for step in range(9)])
    legw = rates(vbs.LegwOptimizer, trace=[16] * 20, warmup_epochs=1)
    assert legw[:9] == pytest.approx([0.02 * math.sqrt(2) * min(1.0, (step + 1) / 8) for step in range(9)])


def test_any_rule_can_be_named_or_given_as_a_function() -> None:
    assert rates(vbs.RuleOptimizer, rule="sqrt") == rates(vbs.RootRuleOptimizer)
    assert rates(vbs.RuleOptimizer, rule=lambda batch, reference: 3.0) == pytest.approx([0.06] * 18)
    with pytest.raises(ValueError, match="adascale"):
        rates(vbs.RuleOptimizer, rule="cubic")


def test_a_subclass_says_its_own_learning_rate_as_in_the_original() -> None:
    class Half(vbs.CustomOptimizer):
        def adapt_lr(self) -> None:
            self.set_lr([rate / 2 for rate in self.get_lr()])

    assert rates(Half) == [0.01] * 18
