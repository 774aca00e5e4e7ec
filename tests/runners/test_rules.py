"""Learning-rate rules against their formulas, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edt_runner.errors import UsageError
from edt_runner.lr_scaling import rules
from edt_runner.lr_scaling.rules import AdamScale, AdaScale, Legw, LinearWarmup, Rule, by_name, described
from edt_runner.lr_scaling.update import Moments, Norms, Scaling, Update

REFERENCE = 8


def update(batch: int, *, index: int = 0, samples: int = 0, reference: int = REFERENCE) -> Update:
    """Micro-batches of 4, epochs of 100 samples."""
    return Update(batch, reference, 4, index, samples, 100)


def factor(rule: str, batch: int, reference: int = REFERENCE) -> float:
    return by_name(rule).scaling(update(batch, reference=reference), None).lr


def factors(rule: Rule, batches: list[int]) -> list[float]:
    """Of one update after the other."""
    found, samples = [], 0
    for index, batch in enumerate(batches):
        found.append(rule.scaling(update(batch, index=index, samples=samples), None).lr)
        samples += batch
    return found


def moments(variance: float, square: float) -> Moments:
    """As measured in one update of two micro-batches of 4: variance of a micro-batch's gradient, true square."""
    made = Moments(4)
    mean = square + variance / 2
    made.add(Norms(2, 8, np.array([mean + variance / 2]), np.array([mean])))
    return made


@pytest.mark.parametrize(
    ("batch", "rate"), [(8, 0.02), (16, 0.04), (12, 0.03), (20, 0.05), (32, 0.08), (4, 0.01), (24, 0.06)]
)
def test_c2_08_linear_multiplies_with_the_batch_in_reference_batches(batch: int, rate: float) -> None:
    assert 0.02 * factor("linear", batch) == pytest.approx(rate, rel=1e-15)
    assert 0.1 * factor("linear", 256, 128) == pytest.approx(0.2, rel=1e-15)


@pytest.mark.parametrize("name", ["root", "sqrt"])
def test_c2_09_root_multiplies_with_its_square_root(name: str) -> None:
    assert 0.02 * factor(name, 8) == 0.02
    assert 0.02 * factor(name, 16) == pytest.approx(0.0282842712474619, rel=1e-15)
    assert 0.1 * factor(name, 512, 128) == pytest.approx(0.2, rel=1e-15)


def test_constant_changes_nothing() -> None:
    assert by_name("constant").scaling(update(64), None) == Scaling()


def test_adams_square_root_scales_rate_betas_and_epsilon() -> None:
    """Malladi: k = 4 takes beta_1 from .9 to .6 and beta_2 from .999 to .996."""
    scaling = by_name("adam-sqrt").scaling(update(32), None)
    assert (scaling.lr, scaling.eps) == (2.0, 0.5)
    assert scaling.betas(0.9) == pytest.approx(0.6)
    assert scaling.betas(0.999) == pytest.approx(0.996)
    assert by_name("adam-sqrt").scaling(update(96), None).betas(0.9) == 0.0  # 1 - 12 x .1 would be below


def test_goyals_warm_up_goes_along_with_the_first_rise_over_five_epochs() -> None:
    """k = 4: from 1 at sample 0 to 4 at sample 500, in a straight line; from there on 4."""
    found = factors(by_name("linear-warmup"), [32] * 20)
    expected = [1 + 3 * min(1.0, 32 * index / 500) for index in range(20)]
    assert found == pytest.approx(expected)


def test_goyals_warm_up_follows_a_fall_at_once_and_a_later_rise_from_where_it_is() -> None:
    """One epoch a rise: 4 is reached by sample 128; a fall to 2 lasts; the next rise to 4 begins at 2."""
    found = factors(LinearWarmup(epochs=1), [32] * 5 + [16] * 3 + [32] * 5)
    assert found[:5] == pytest.approx([1 + 3 * min(1.0, 32 * index / 100) for index in range(5)])
    assert found[5:8] == pytest.approx([2.0, 2.0, 2.0])
    assert found[8:] == pytest.approx([2 + 2 * min(1.0, 32 * index / 100) for index in range(5)])


def test_goyals_warm_up_takes_a_single_small_batch_for_no_fall() -> None:
    """An epoch's last step: it has its own factor, and the steps after it go on."""
    found = factors(LinearWarmup(epochs=1), [32] * 5 + [4] + [32] * 3)
    assert found[5:] == pytest.approx([0.5, 4.0, 4.0, 4.0])


def test_goyals_warm_up_needs_none_below_the_reference() -> None:
    assert factors(LinearWarmup(), [4, 4, 2]) == pytest.approx([0.5, 0.5, 0.25])
    assert factors(LinearWarmup(epochs=0), [32, 32]) == pytest.approx([4.0, 4.0])


def test_legw_warms_up_k_times_as_long_to_the_square_root_of_k() -> None:
    """k = 4: one epoch at the reference is four here, 400 samples."""
    found = factors(Legw(epochs=1), [32] * 15)
    assert found == pytest.approx([2 * min(1.0, 32 * (index + 1) / 400) for index in range(15)])
    assert factors(Legw(epochs=0), [32]) == [2.0]


def test_c2_20_adascales_gain_lies_between_1_and_s() -> None:
    """All variance: a step of S micro-batches is worth S of one. None: one."""
    generator = np.random.default_rng(0)
    for variance, square in [*generator.exponential(size=(50, 2)), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]:
        for batch in (4, 8, 12, 64):
            rule = AdaScale(base="micro_batch")
            rule.scaling(update(batch), moments(variance, square))
            assert 1 <= rule.gain <= batch / 4
    for (variance, square), gain in (((1.0, 0.0), 16.0), ((0.0, 1.0), 1.0)):
        rule = AdaScale(base="micro_batch")
        rule.scaling(update(64), moments(variance, square))
        assert rule.gain == pytest.approx(gain, rel=1e-4)


def test_adascale_from_a_micro_batch_is_the_papers_gain_times_the_rate_there() -> None:
    """variance 3, square 1, S = 4: (3 + 1) / (3 / 4 + 1); the reference is two micro-batches."""
    rule = AdaScale(base="micro_batch")
    found = [rule.scaling(update(16, index=index), moments(3.0, 1.0)).lr for index in range(3)]
    assert found == pytest.approx([4 / 8 * 16 / 7] * 3)
    assert rule.details() == pytest.approx({"gain": 16 / 7, "scale_invariant_iterations": 3 * 16 / 7})


def test_adascale_keeps_the_rate_at_the_reference_and_gains_from_there() -> None:
    """The gain of 16 over 8 samples, of which the variance is half a micro-batch's: (1.5 + 1) / (.75 + 1)."""
    rule = AdaScale()
    assert rule.scaling(update(REFERENCE), moments(3.0, 1.0)).lr == pytest.approx(1.0)
    assert rule.scaling(update(16), moments(3.0, 1.0)).lr == pytest.approx(2.5 / 1.75)


def test_c2_19_adascale_of_one_micro_batch_has_gain_1() -> None:
    rule = AdaScale(base="micro_batch")
    nothing = Moments(4)
    nothing.add(Norms(1, 4, np.array([2.0]), np.array([2.0])))
    for known in (nothing, None, moments(3.0, 1.0)):
        assert rule.scaling(update(4, reference=4), known).lr == 1.0
    assert rule.scale_invariant_iterations == 3.0


def test_adamscale_is_the_square_root_of_adascale() -> None:
    ada, adam = AdaScale(base="micro_batch"), AdamScale(base="micro_batch")
    factor = ada.scaling(update(16), moments(3.0, 1.0)).lr
    assert adam.scaling(update(16), moments(3.0, 1.0)).lr == pytest.approx(factor**0.5)
    assert adam.scale_invariant_iterations == ada.scale_invariant_iterations


def test_adascale_of_statistics_by_group_has_a_factor_for_each() -> None:
    made = Moments(4)
    made.add(Norms(2, 8, np.array([4.0, 1.0]), np.array([2.5, 1.0])))  # variance 3 and 0, square 1 and 1
    scaling = AdaScale(base="micro_batch").scaling(update(16, reference=4), made)
    assert [scaling.of(group) for group in (0, 1)] == pytest.approx([16 / 7, 1.0], rel=1e-5)


# ── names, functions, memory ────────────────────────────────────────────────────────────────────────────────────
def test_each_rule_has_its_name() -> None:
    assert [by_name(name).name for name in rules.RULES] == list(rules.RULES)
    own = LinearWarmup(epochs=2)
    assert by_name(own) is own
    assert isinstance(by_name(AdaScale), AdaScale)
    assert by_name("adascale") is not by_name("adascale")  # what one training remembers is not another's


def test_an_unknown_rule_is_answered_with_those_there_are() -> None:
    names = "adam-sqrt, adamscale, adascale, constant, legw, linear, linear-warmup, root, sqrt"
    for wrong in ("linaer", 3, None, dict):
        with pytest.raises(UsageError, match=f"^lr_rule: got .*, takes one of {names}"):
            by_name(wrong)  # type: ignore[arg-type]


def test_a_function_of_batch_and_reference_is_a_rule() -> None:
    def cubic(batch: int, reference: int) -> float:
        return float((batch / reference) ** (1 / 3))

    rule = by_name(cubic)
    assert rule.scaling(update(64), None).lr == pytest.approx(2.0)
    assert "cubic" in rule.name


@pytest.mark.parametrize("wrong", [lambda b, r: -1.0, lambda b, r: float("nan"), lambda b, r: None])
def test_a_function_that_returns_no_factor_is_named_with_what_it_returned(wrong: Callable[[int, int], Any]) -> None:
    with pytest.raises(UsageError, match=r"^lr_rule: .*\(16, 8\) returned .*, takes a finite number, at least 0"):
        by_name(wrong).scaling(update(16), None)


@pytest.mark.parametrize(
    "make", [lambda: LinearWarmup(epochs=-1), lambda: Legw(float("nan")), lambda: AdaScale(power=float("inf"))]
)
def test_a_parameter_that_is_none_is_named(make: Callable[[], Rule]) -> None:
    with pytest.raises(UsageError, match=r"^(epochs|power): got .*, takes a number, at least 0"):
        make()
    with pytest.raises(UsageError, match=r"^base: got 'batch', takes 'micro_batch' or 'reference'"):
        AdaScale(base="batch")


@pytest.mark.parametrize("name", rules.RULES)
def test_a_rule_goes_on_from_what_it_remembers(name: str) -> None:
    """Also through JSON, as in a checkpoint."""
    batches, known = [32, 32, 16, 16, 64, 4, 64, 64], moments(3.0, 1.0)
    one, other = by_name(name), by_name(name)
    samples, found = 0, []
    for index, batch in enumerate(batches):
        if index == 5:
            other.load(json.loads(json.dumps(one.to_json_object())))
        here = update(batch, index=index, samples=samples)
        found.append(one.scaling(here, known))
        if index >= 5:
            assert other.scaling(here, known) == found[-1]
        samples += batch
    assert one.details() == other.details()


def test_what_a_rule_is_says_its_name_parameters_and_reference() -> None:
    assert described(by_name("linear"), 8) == "linear() of 8"
    assert described(LinearWarmup(epochs=2), 8) == "linear-warmup(epochs=2.0) of 8"
