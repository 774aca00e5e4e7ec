"""AdaScale: gains within their bounds, from right norms, without bias; ETH's numbers behind ``compat``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import variable_batch_size as vbs
from edt_runner.lr_scaling.update import Moments, Norms
from support import regression
from support.vbs_rank import ADA, Training

CLOSE = {"rtol": 0.0, "atol": 1e-12}


def trained(trace: list[int], **options: Any) -> tuple[Training, list[float], list[float]]:
    """The training, its gains and the sums of squared norms, by update."""
    training = Training(0, 1, vbs.AdaScaleOptimizer, trace, **options)
    gains, squares = [], []
    for _ in training.run():
        if training.returned[-1][-1]:
            gains.append(training.optimizer.gain()[0])  # type: ignore[attr-defined]
            squares.append(training.optimizer.accum_grad_sqr[0])  # type: ignore[attr-defined]
    return training, gains, squares


def norms(gradients: np.ndarray, samples: int | None = None) -> Norms:
    """Of equal micro-batches, one a row."""
    count = len(gradients)
    mean = gradients.mean(axis=0)
    square = np.array([np.square(gradients).sum() / count])
    return Norms(count, samples or count, square, np.array([mean @ mean]))


@pytest.mark.parametrize(
    ("compat", "loop"),
    [
        (False, regression.AdaScale()),
        ("averages", regression.AdaScale(theirs=True)),
        (True, regression.AdaScale(theirs=True, differences=True)),
    ],
)
def test_c2_17_18_gains_and_weights_are_the_loops(compat: bool | str, loop: regression.AdaScale) -> None:
    epochs = [Training(0, 1, trace=ADA).sampler.get_epochtrace(epoch) for epoch in range(5)]
    assert [batch for epoch in epochs for batch in epoch] == ADA
    loop.run(epochs)
    training, gains, squares = trained(ADA, compat=compat)
    np.testing.assert_allclose(gains, loop.gains, **CLOSE)
    np.testing.assert_allclose(training.seen, loop.weights, **CLOSE)
    np.testing.assert_allclose(squares, loop.sums_of_squares, rtol=1e-12)


def test_c2_17_18_the_recorded_gains_of_the_first_update_agree_with_each_other_and_the_recorded_weights() -> None:
    """The data behind the recorded numbers are not known, but the first update's mean gradient is: the linear rule's
    first weights over its learning rate. With the debiased gain that gives the variance, and both the original's."""
    recorded, debiased, originals = np.array([0.012012328, -0.033815061, -0.030103307]), 1.311695, 1.003388835
    square_mean = float(np.square(recorded / 0.02).sum())
    ratio = (debiased - 1) / (1 - debiased / 2)  # of the variance to the square, from the gain at S = 2
    variance = square_mean * ratio / (1 + ratio / 2)
    measured = Norms(2, 8, np.array([square_mean + variance / 2]), np.array([square_mean]))
    for compat, expected in ((False, debiased), (True, originals)):
        moments = Moments(4, compat=compat)
        moments.add(measured)
        assert moments.gain(2)[0] == pytest.approx(expected, abs=2e-8)


def test_c2_17_the_originals_gains_begin_near_1_and_only_behind_the_flag() -> None:
    ours, theirs = trained(ADA)[1], trained(ADA, compat="averages")[1]
    assert theirs[0] - 1 < (ours[0] - 1) / 5
    with pytest.raises(ValueError, match="compat: got 'all', takes True, False or 'averages'"):
        trained(ADA, compat="all")


def test_c2_18_the_sum_of_the_gains_is_the_scale_invariant_iterations() -> None:
    training, gains, _ = trained(ADA)
    assert len(gains) == 17
    assert training.optimizer.scale_invariant_iterations == pytest.approx(sum(gains))  # type: ignore[attr-defined]
    assert training.optimizer.details()["scale_invariant_iterations"] == pytest.approx(sum(gains))
    resumed = Training(0, 1, vbs.AdaScaleOptimizer, ADA).load(training.save())
    assert resumed.optimizer.scale_invariant_iterations == pytest.approx(sum(gains))  # type: ignore[attr-defined]
    assert resumed.optimizer.gain() == training.optimizer.gain()  # type: ignore[attr-defined]


@pytest.mark.parametrize("compat", [False, "averages", True])
def test_c2_19_an_update_of_one_micro_batch_has_gain_1(compat: bool | str) -> None:
    training, gains, _ = trained([4] * 16 + [8] * 8 + [4] * 48, compat=compat)
    assert gains[:16] == [1.0] * 16 and gains[24:] == [1.0] * 48
    assert training.optimizer.details()["learning_rate"] == pytest.approx(0.01)


def test_c2_20_the_gain_is_between_1_and_the_number_of_micro_batches() -> None:
    random = np.random.default_rng(7)
    for _ in range(200):
        moments = Moments(1)
        for count in random.integers(1, 9, size=5):
            moments.add(norms(random.standard_normal((count, 3)) * random.choice([1e-4, 1, 1e4]) + random.normal()))
            for scale in (1, 2, 8, 500):
                assert 1 <= moments.gain(scale)[0] <= scale


def test_c2_20_it_is_all_of_them_where_noise_dominates_and_1_where_there_is_none() -> None:
    noisy, still = Moments(1), Moments(1)
    noisy.add(norms(np.array([[1000.0], [-1000.0], [1000.0], [-1000.0]])))
    assert noisy.gain(4)[0] == pytest.approx(4)
    assert noisy.noise_scale == float("inf")
    still.add(norms(np.full((4, 1), 3.0)))
    assert still.gain(4)[0] == pytest.approx(1, abs=1e-6)
    assert still.noise_scale == pytest.approx(0)
    assert Moments(1).gain(4)[0] == 1, "before anything is known"


@pytest.mark.parametrize(("differences", "expected"), [(False, [10, 10]), (True, [10, 18])])
def test_c2_21_squared_norms_are_of_this_updates_gradients(differences: bool, expected: list[int]) -> None:
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    sampler = vbs.CustomSampler(range(16), 8, minibatch_size=4, verbose=False)
    optimizer = vbs.AdaScaleOptimizer(torch.optim.SGD([weight], lr=0.0), sampler, compat=differences)
    found = []
    for number, _ in enumerate(sampler):
        (weight * (1.0, 3.0)[number % 2]).sum().backward()
        if optimizer.step():
            found.append(optimizer.accum_grad_sqr[0])
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("sizes", [[2], [8], [2] * 5 + [8] * 5])
def test_c2_22_the_variance_of_a_micro_batch_is_measured_right_at_every_number_of_them(sizes: list[int]) -> None:
    random = np.random.default_rng(3)
    ours, theirs = Moments(1), Moments(1, compat=True)
    at: dict[int, list[tuple[float, float]]] = {}
    for update in range(12000):
        count = sizes[update % len(sizes)]
        measured = norms(1 + np.sqrt(3) * random.standard_normal((count, 1)))
        ours.add(measured)
        theirs.add(measured)
        if update > 4000:
            at.setdefault(count, []).append((float(ours.variance[0]), float(theirs.variance[0])))
    for found in at.values():
        assert np.mean([own for own, _ in found]) == pytest.approx(3, abs=0.12)
    if len(at) == 2:
        assert np.mean([their for _, their in at[2]]) == pytest.approx(10.2, abs=0.4)
        assert np.mean([their for _, their in at[8]]) == pytest.approx(2.6, abs=0.15)


def test_uneven_micro_batches_are_measured_without_bias() -> None:
    random = np.random.default_rng(5)
    sizes = np.array([1, 2, 5, 8])
    weights = sizes / sizes.sum()
    noise, signal = [], []
    for _ in range(20000):
        gradients = np.array([2 + np.sqrt(3) * random.standard_normal(size).mean() for size in sizes])
        measured = Norms(4, 16, np.array([weights @ gradients**2]), np.array([(weights @ gradients) ** 2]))
        noise.append(measured.noise[0])
        signal.append(measured.signal[0])
    assert np.mean(noise) == pytest.approx(3, abs=0.1)
    assert np.mean(signal) == pytest.approx(4, abs=0.03)


def test_moments_go_on_from_their_state() -> None:
    first = Moments(4)
    first.add(norms(np.array([[1.0], [3.0]]), samples=8))
    second = Moments(4)
    second.load(first.to_json_object())
    for moments in (first, second):
        moments.add(norms(np.array([[2.0], [3.0], [7.0]]), samples=12))
    assert first.to_json_object() == second.to_json_object()
    assert first.variance == second.variance


def test_each_parameter_group_has_a_gain_of_its_own() -> None:
    noisy, still = (torch.zeros(1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    sampler = vbs.CustomSampler(range(16), 8, minibatch_size=4, verbose=False)
    inner = torch.optim.SGD([{"params": [noisy]}, {"params": [still], "lr": 0.5}], lr=0.25)
    optimizer = vbs.AdaScaleOptimizer(inner, sampler, ref_batchsize=4)
    for number, _ in enumerate(sampler):
        (noisy * (-1.0, 1.0)[number % 2] + still).sum().backward()
        optimizer.step()
    assert optimizer.gain() == pytest.approx((2, 1), abs=1e-5)
    assert optimizer.current_lr() == pytest.approx((0.5, 0.5), abs=1e-5)
    assert still.item() == pytest.approx(-0.5 * 2, abs=1e-5), "two updates of 0.5"
    assert (len(optimizer.grad_sqr_avg), len(optimizer.grad_var_avg)) == (2, 2)


def test_the_original_takes_log_steps_before_the_reference_here() -> None:
    training = Training(0, 1)
    optimizer = vbs.AdaScaleOptimizer(training.optimizer.optimizer, training.sampler, 5, 8)
    assert (optimizer.log_steps, optimizer.ref_batchsize) == (5, 8)
    with pytest.raises(ValueError, match="measure: got False"):
        vbs.AdaScaleOptimizer(training.optimizer.optimizer, training.sampler, measure=False)


def test_adamscale_takes_the_root_of_the_factor() -> None:
    training = Training(0, 1, vbs.AdamScaleOptimizer, ADA, inner=torch.optim.Adam)
    for _ in training.run(1):
        pass
    (gain,) = training.optimizer.gain()  # type: ignore[attr-defined]
    assert training.optimizer.details()["learning_rate"] == pytest.approx(0.02 * (0.5 * gain) ** 0.5)
    assert training.optimizer.current_lr() == pytest.approx((0.02 * (0.5 * gain) ** 0.5,))  # type: ignore[attr-defined]


def test_gradients_that_are_not_finite_are_not_measured() -> None:
    weight = torch.zeros(1, requires_grad=True)
    sampler = vbs.CustomSampler(range(16), 8, minibatch_size=4, verbose=False)
    optimizer = vbs.AdaScaleOptimizer(torch.optim.SGD([weight], lr=0.1), sampler)
    for number, _ in enumerate(sampler):
        weight.grad = torch.tensor([float("inf") if number == 0 else 1.0])
        optimizer.step()
    assert optimizer.moments.known and np.isfinite(optimizer.moments.variance).all()
