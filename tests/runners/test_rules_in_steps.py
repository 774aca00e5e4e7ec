"""Adapters under a learning-rate rule, of both frameworks, against an independent NumPy loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edt_runner.errors import StateMismatch, UsageError
from edt_runner.frameworks.trainable import EngineAdapter, scaled
from edt_runner.lr_scaling.rules import AdaScale, Rule, by_name
from edt_runner.lr_scaling.update import Scaling
from edt_runner.schedule import StepKind
from support.sides import Keras, PyTorch, Side, adapter_of, carry, on_side, step

MICRO, REFERENCE, LR = 4, 8, 0.1
UPDATES = [(4, 4), (4, 4, 4, 4), (4, 4, 2, 1), (3,), (4, 4, 4), (4, 1)]
"""Rows of each micro-batch of each update."""
SIDES = ["pytorch", "keras", "tf_keras"]


def side_of(name: str) -> Side:
    if name == "pytorch":
        return PyTorch()
    return Keras(name)


@pytest.fixture(params=map(on_side, SIDES))
def side(request: pytest.FixtureRequest) -> Iterator[Side]:
    yield side_of(request.param)


def under(
    side: Side, rule: str | Rule | Callable[[int, int], float], optimizer: str = "sgd", model: str = "float64"
) -> EngineAdapter:
    inner = side.adapter(model, optimizer)
    return scaled(inner, by_name(rule), reference=REFERENCE, micro_batch=MICRO, epoch_samples=50)


def batches(side: Side, update: int) -> list[Any]:
    found = [side.batch(10 * update + place, rows=rows) for place, rows in enumerate(UPDATES[update])]
    return [tuple(_as_double(part) for part in batch) for batch in found]


def _as_double(part: Any) -> Any:
    return part.double() if isinstance(part, torch.Tensor) else part.astype(np.float64)


@dataclass
class Loop:
    """Linear regression by mean squared error, one update after the other; ``weights``: those of the inputs, and bias.

    Args:
        momentum: of SGD; the velocity holds gradients.
    """

    weights: np.ndarray[Any, Any]
    momentum: float = 0.0
    velocity: Any = 0.0
    first: Any = 0.0
    second: Any = 0.0
    steps: int = 0
    seen: list[tuple[float, float, float]] = field(default_factory=list)
    """AdaScale: theta, noise and signal of each update."""

    def gradient(self, inputs: Any, targets: Any) -> np.ndarray[Any, Any]:
        inputs, targets = np.asarray(inputs), np.asarray(targets)[:, 0]
        rows = np.hstack([inputs, np.ones((len(inputs), 1))])
        return np.asarray(2 / len(rows) * rows.T @ (rows @ self.weights - targets))

    def whole(self, parts: list[Any]) -> np.ndarray[Any, Any]:
        return self.gradient(*(np.concatenate([np.asarray(part[place]) for part in parts]) for place in (0, 1)))

    def sgd(self, gradient: Any, rate: float) -> None:
        self.velocity = self.momentum * self.velocity + gradient
        self.weights = self.weights - rate * self.velocity

    def adam(self, gradient: Any, rate: float, betas: tuple[float, float], epsilon: float) -> None:
        self.steps += 1
        self.first = betas[0] * self.first + (1 - betas[0]) * gradient
        self.second = betas[1] * self.second + (1 - betas[1]) * gradient**2
        first, second = self.first / (1 - betas[0] ** self.steps), self.second / (1 - betas[1] ** self.steps)
        self.weights = self.weights - rate * first / (np.sqrt(second) + epsilon)

    def gain(self, parts: list[Any]) -> float:
        """The paper's, of unbiased estimates whose averages are the weighted means of all updates that had any."""
        sizes = np.array([len(part[1]) for part in parts])
        total, count = sizes.sum(), len(parts)
        if count > 1:
            square = sum(n / total * np.sum(self.gradient(*part) ** 2) for n, part in zip(sizes, parts, strict=True))
            mean = np.sum(self.whole(parts) ** 2)
            noise = total / (count - 1) * (square - mean)
            self.seen.append((1 - count / 1000, float(noise), float(mean - noise / total)))
        weights = np.array([1 - theta for theta, _, _ in self.seen])
        later = np.array([math.prod(theta for theta, _, _ in self.seen[place + 1 :]) for place in range(len(weights))])
        counts = weights * later
        noise, signal = (np.sum(counts * [row[k] for row in self.seen]) / np.sum(counts) for k in (1, 2))
        variance, signal, scale = max(noise / MICRO, 1e-6), max(signal, 0.0), total / MICRO
        return float(np.clip((variance + signal) / (variance / scale + signal), min(1.0, scale), max(1.0, scale)))


def begun(side: Side, adapter: EngineAdapter, **options: Any) -> Loop:
    return Loop(weights_of(side, adapter), **options)


def weights_of(side: Side, adapter: EngineAdapter) -> np.ndarray[Any, Any]:
    values = side.state(adapter)
    ordered = sorted(values, key=lambda name: "bias" in name)
    return np.concatenate([values[name].reshape(-1) for name in ordered])


def samples(parts: list[Any]) -> int:
    return sum(len(part[1]) for part in parts)


# ── against NumPy ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("rule", ["linear", "root"])
def test_sgd_with_momentum_under_a_rule_is_numpys(side: Side, rule: str) -> None:
    """With Keras too, whose velocity holds learning rate x gradient: it goes along with the learning rate."""
    adapter = under(side, rule, "momentum")
    loop = begun(side, adapter, momentum=0.9)
    for number in range(len(UPDATES)):
        parts = batches(side, number)
        scale = samples(parts) / REFERENCE
        step(adapter, *parts)
        loop.sgd(loop.whole(parts), LR * (scale if rule == "linear" else math.sqrt(scale)))
        np.testing.assert_allclose(weights_of(side, adapter), loop.weights, rtol=1e-6, atol=1e-7)


def test_sgd_under_adascale_is_numpys(side: Side) -> None:
    """Gain, tau and learning rate, too."""
    adapter = under(side, AdaScale(base="micro_batch"), "momentum")
    loop, tau = begun(side, adapter, momentum=0.9), 0.0
    for number in range(len(UPDATES)):
        parts = batches(side, number)
        gain = loop.gain(parts)
        rate, tau = LR * MICRO / REFERENCE * gain, tau + gain
        loop.sgd(loop.whole(parts), rate)
        step(adapter, *parts)
        np.testing.assert_allclose(weights_of(side, adapter), loop.weights, rtol=1e-6, atol=1e-7)
        details = adapter.details()
        assert details["batch"] == samples(parts)
        assert details["learning_rate"] == pytest.approx(rate, rel=1e-6)
        assert details["gain"] == pytest.approx(gain, rel=1e-6)
        assert details["scale_invariant_iterations"] == pytest.approx(tau, rel=1e-6)


def test_adam_under_its_square_root_rule_is_numpys(side: Side) -> None:
    """Keras adds epsilon, 1e-7, before the correction of the second moment; at 1e-7 that does not show."""
    adapter = under(side, "adam-sqrt", "adam")
    loop = begun(side, adapter)
    epsilon = 1e-8 if isinstance(side, PyTorch) else 1e-7
    for number in range(len(UPDATES)):
        parts = batches(side, number)
        scale = samples(parts) / REFERENCE
        betas = (1 - scale * (1 - 0.9), 1 - scale * (1 - 0.999))
        loop.adam(loop.whole(parts), LR * math.sqrt(scale), betas, epsilon / math.sqrt(scale))
        step(adapter, *parts)
        np.testing.assert_allclose(weights_of(side, adapter), loop.weights, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        *(on_side("pytorch", name) for name in ("nesterov", "adamw of a tensor", "rmsprop")),
        *(on_side("keras", name) for name in ("scheduled", "averaged", "decaying", "scaled")),
        *(on_side("tf_keras", name) for name in ("scheduled", "decaying", "scaled")),
        *(on_side("tf_keras", name) for name in ("old adam", "old sgd with decay", "old nadam", "old scheduled")),
    ],
)
def test_a_factor_is_the_same_as_another_learning_rate_from_the_start(name: str, optimizer: str) -> None:
    """Whatever the optimizer does with it, of a schedule or a number."""
    one = under(side_of(name), lambda batch, reference: 0.5, optimizer, "linear")
    other = side_of(name).adapter("linear", optimizer)
    _halve(other)
    for number in range(3):
        for adapter in (one, other):
            step(adapter, side_of(name).batch(number), side_of(name).batch(number + 5))
    for key, value in side_of(name).state(other).items():
        np.testing.assert_allclose(side_of(name).state(one)[key], value, rtol=1e-5, atol=1e-7)


def _halve(adapter: Any) -> None:
    """The learning rate of its optimizer."""
    if hasattr(adapter, "optimizers"):
        for group in adapter.optimizers.param_groups:
            group["lr"] = group["lr"] * 0.5
        return
    optimizer = getattr(adapter.model.optimizer, "inner_optimizer", adapter.model.optimizer)
    hyper = getattr(optimizer, "_hyper", {})
    schedule = hyper["learning_rate"] if hyper else optimizer._learning_rate
    if hasattr(schedule, "initial_learning_rate"):
        schedule.initial_learning_rate *= 0.5
    else:
        schedule.assign(schedule * 0.5)


def test_statistics_of_uneven_micro_batches_are_unbiased() -> None:
    """At weights that stand still, of a data set with known gradients: noise and square as computed from all of it."""
    side = PyTorch()
    adapter = under(side, lambda batch, reference: 0.0)
    loop = begun(side, adapter)
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((64, 3))
    targets = inputs @ [[1.0], [-2.0], [0.5]] + generator.standard_normal((64, 1))
    single = np.array([loop.gradient(inputs[row : row + 1], targets[row : row + 1]) for row in range(64)])
    noise, square = np.sum(np.var(single, axis=0)), np.sum(np.mean(single, axis=0) ** 2)
    for _ in range(500):
        rows = [generator.integers(0, 64, size) for size in (4, 4, 1, 2)]
        step(adapter, *((torch.from_numpy(inputs[each]), torch.from_numpy(targets[each])) for each in rows))
    measured = adapter.export_state().meta["scaling"]["moments"]
    assert measured["noise"][0] / measured["weight"] == pytest.approx(noise, rel=0.05)
    assert measured["signal"][0] / measured["weight"] == pytest.approx(square, rel=0.1)
    assert adapter.details()["gradient_noise_scale"] == pytest.approx(noise / square, rel=0.15)


@pytest.mark.tensorflow
def test_a_scaled_loss_and_whole_batches_as_units_leave_the_statistics_as_they_are() -> None:
    side = Keras("keras")
    ones = [under(side, "adascale", name, "linear") for name in ("adam", "scaled")]
    net = side.model("linear")
    inner = adapter_of(net, "mse", side.optimizers["adam"](net), [], side.batch(), by_rows=True)
    by_rows = scaled(inner, AdaScale(), reference=REFERENCE, micro_batch=MICRO, epoch_samples=50)
    parts = side.batch(1, rows=4), side.batch(2, rows=2)
    for adapter in ones:
        step(adapter, *parts)
    vectors = [torch.empty(by_rows.size(StepKind.TRAIN)) for _ in parts]
    for local, part in zip(vectors, parts, strict=True):
        by_rows.micro_batch(part, 1, 2, 0, local)
    by_rows.apply(torch.stack(vectors).sum(dim=0))
    first, *others = [adapter.export_state().meta["scaling"]["moments"] for adapter in (*ones, by_rows)]
    for other in others:
        assert (other["noise"], other["signal"]) == (
            pytest.approx(first["noise"], 1e-5),
            pytest.approx(first["signal"], 1e-5),
        )
    assert by_rows.details()["batch"] == 6.0


# ── what stays ──────────────────────────────────────────────────────────────────────────────────────────────────
def test_parameter_groups_have_their_own_hyperparameters_again_whatever_happens() -> None:
    from edt_runner.frameworks.pytorch.adapter import TorchAdapter

    model = nn.Linear(3, 1)
    rate, betas = torch.tensor(0.1), (0.9, 0.99)
    groups: list[dict[str, Any]] = [{"params": [model.weight], "lr": rate, "betas": betas}, {"params": [model.bias]}]
    optimizer = torch.optim.Adam(groups, lr=0.02, eps=1e-6, amsgrad=True)
    adapter = TorchAdapter(model, optimizer, nn.functional.mse_loss, {}, torch.device("cpu"))
    before = [dict(group) for group in optimizer.param_groups]
    with pytest.raises(ZeroDivisionError), adapter.rescaled(Scaling(0.5, beta=4.0, eps=2.0)) as rates:
        assert rates == pytest.approx([0.05, 0.01])
        assert [group["eps"] for group in optimizer.param_groups] == [2e-6, 2e-6]
        assert optimizer.param_groups[0]["betas"] == pytest.approx((0.6, 0.96))
        raise ZeroDivisionError
    with adapter.rescaled(Scaling(groups=(2.0, 3.0))) as rates:
        assert rates == pytest.approx([0.2, 0.06])
    for group, kept in zip(optimizer.param_groups, before, strict=True):
        assert all(group[key] is value for key, value in kept.items())
    assert float(rate) == pytest.approx(0.1)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["keras", "tf_keras"])
def test_a_keras_optimizer_is_the_users_own_again_whatever_happens(name: str) -> None:
    adapter = under(Keras(name), "adam-sqrt", "adam", "linear")
    optimizer = adapter.model.optimizer  # type: ignore[attr-defined]
    kind, config = type(optimizer), optimizer.get_config()
    step(adapter, Keras(name).batch(0, rows=32))
    assert type(optimizer) is kind and optimizer.get_config() == config
    one = under(Keras(name), "linear", "momentum", "linear")
    step(one, Keras(name).batch(0, rows=4))
    before = [tensor.clone() for tensor in one.export_state().tensors.values()]
    with pytest.raises(ZeroDivisionError), one.rescaled(Scaling(2.0, velocity=3.0)):
        raise ZeroDivisionError
    assert all(map(torch.equal, before, one.export_state().tensors.values()))


@pytest.mark.parametrize("rule", ["adascale", "linear-warmup"])
def test_what_a_rule_remembers_goes_where_the_state_goes(side: Side, rule: str) -> None:
    first, second = under(side, rule, "momentum"), under(side, rule, "momentum")
    for number in range(3):
        step(first, *batches(side, number))
    carry(first, second)
    assert second.details() == {}  # of the last update a joining engine has nothing to say
    for number in range(3, 6):
        for adapter in (first, second):
            step(adapter, *batches(side, number))
        assert first.details() == second.details()
    assert first.digest() == second.digest()
    assert first.export_state().meta == second.export_state().meta


def test_a_factor_of_1_leaves_the_bits_as_without_a_rule(side: Side) -> None:
    one, other = under(side, "constant", "adam", "linear"), side.adapter("linear", "adam")
    one.warm_up(side.batch(9))
    for number in range(3):
        for adapter in (one, other):
            step(adapter, side.batch(number), side.batch(number + 5))
    assert one.digest() == other.digest()


def test_a_state_without_a_rule_is_refused() -> None:
    side = PyTorch()
    with pytest.raises(StateMismatch, match="lr_rule: the training has none"):
        carry(side.adapter(), under(side, "linear", "adam", "linear"))


@pytest.mark.tensorflow
def test_gradients_that_are_no_numbers_say_nothing_to_the_rule() -> None:
    """A loss scale that was too large: the optimizer skips the step."""
    side = Keras("keras")
    adapter = under(side, "adascale", "scaled", "linear")
    step(adapter, side.batch(0), side.batch(1))
    before, digest = adapter.export_state().meta["scaling"], side.state(adapter)
    reduced = torch.full((adapter.size(StepKind.TRAIN),), float("inf"))
    reduced[-4:] = torch.tensor([4.0, 1.0, 1.0, 2.0])  # rows, loss; norms, micro-batches
    adapter.apply(reduced)
    after = adapter.export_state().meta["scaling"]
    assert (after["moments"], after["rule"]) == (before["moments"], before["rule"])
    assert all(np.array_equal(value, digest[name]) for name, value in side.state(adapter).items())


def test_a_rule_of_betas_refuses_an_optimizer_without(side: Side) -> None:
    with pytest.raises(UsageError, match=r"^lr_rule: got 'adam-sqrt', .* SGD, which has none; takes 'root' with it"):
        under(side, "adam-sqrt", "sgd")
    under(side, "adam-sqrt", "rmsprop" if isinstance(side, PyTorch) else "nadam")
