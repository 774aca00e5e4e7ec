"""Gradients between TensorFlow and flat vectors: views of memory, and who may change it when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from edt_runner.comm.tree_reduction import Sink
from edt_runner.schedule import StepKind
from edt_runner.step_times import PHASES, Phase, clock
from support.sides import adapter_of

keras: Any = pytest.importorskip("keras")
tf: Any = pytest.importorskip("tensorflow")
gradients: Any = pytest.importorskip("edt_runner.frameworks.tensorflow.gradients")
layers: Any = keras.layers

WIDE = 160
"""A kernel of WIDE x WIDE numbers travels by itself, one of WIDE x 3 with its neighbours."""


def batch(rows: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    return generator.standard_normal((rows, WIDE), dtype=np.float32), generator.integers(0, 3, rows)


def wide() -> Any:
    """Large and small weights. TensorFlow can share the memory of the first kernel, and must copy the fourth."""
    hidden = [layers.Dense(WIDE, "relu"), layers.Dense(7, "relu"), layers.Dense(WIDE, "relu"), layers.Dense(WIDE)]
    return keras.Sequential([keras.Input((WIDE,)), *hidden, layers.Dense(3, "softmax")])


def adapter(make: Callable[[], Any], optimizer: Any = "adam") -> Any:
    keras.utils.set_random_seed(0)
    return adapter_of(make(), "sparse_categorical_crossentropy", optimizer, [], batch(2, 0))


def local(of: Any, number: int) -> torch.Tensor:
    vector = torch.full((of.size(StepKind.TRAIN),), float("nan"))
    of.micro_batch(batch(4, number), 4, 12, number, vector)
    return vector


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_large_gradient_travels_by_itself_and_small_neighbours_together() -> None:
    large = 1 << 14
    runs = gradients.runs_of([3, 4, large, 5, large + 1, large, 1, 1])
    assert [(run.first, run.last) for run in runs] == [(0, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 8)]
    assert [run.start for run in runs] == [0, 7, large + 7, large + 12, 2 * large + 13, 3 * large + 13]
    assert [run.end for run in runs[:-1]] == [run.start for run in runs[1:]]
    assert runs[-1].end == 3 * large + 15


def test_on_a_gpu_all_gradients_travel_together_and_have_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    other = adapter(wide)
    expected = local(other, 0)
    other.apply(expected.clone())
    monkeypatch.setattr(type(gradients.FRAMEWORK), "gpus", lambda self: 1)
    trained = adapter(wide)
    assert [run[2:] for run in trained._runs] == [(0, trained.gradient_size)]
    found = local(trained, 0)
    assert torch.equal(found, expected)
    trained.apply(found)
    assert trained.digest() == other.digest()


# ── out ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_gradients_that_a_sink_adds_are_the_sum_of_the_vectors_bit_for_bit() -> None:
    one, other = adapter(wide), adapter(wide)
    parts = [local(one, number) for number in range(3)]
    total = torch.full_like(parts[0], float("nan"))
    for number in range(3):
        sink = Sink(total, adds=number > 0)
        other.stream(batch(4, number), 4, 12, number, sink)
        assert sink.missing == 0
    assert torch.equal(total, parts[0] + parts[1] + parts[2])


def test_the_last_gradients_are_given_first_and_what_follows_the_gradients_last() -> None:
    """Buckets are sent from the end of the gradients to their beginning."""
    trained, told = adapter(wide), list[tuple[int, int]]()
    trained.micro_batch(batch(4, 0), 4, 12, 0, torch.empty(trained.size(StepKind.TRAIN)))
    target = torch.empty(trained.size(StepKind.TRAIN))
    trained.stream(batch(4, 0), 4, 12, 0, Sink(target, adds=False, ready=lambda *range_: told.append(range_)))
    *pieces, rest = told
    assert rest == (trained.gradient_size, len(target))
    assert pieces == sorted(pieces, reverse=True)
    assert sum(end - start for start, end in pieces) == trained.gradient_size


def test_a_gradient_that_is_the_value_of_a_variable_or_a_constant_stays_what_it_is() -> None:
    """A share of the step is multiplied in torch, with the memory of TensorFlow."""

    class Twins(layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            long = {"shape": (1 << 15,), "initializer": "random_normal"}
            self.one, self.other, self.third, self.fourth = (self.add_weight(name=n, **long) for n in "abcd")

        def call(self, x: Any) -> Any:
            # d/da is the value of b, d/db that of a; those of c and d are the same tensor, a constant
            self.add_loss(tf.reduce_sum(self.one * self.other) + tf.reduce_sum(self.third + self.fourth))
            return x

    def twins() -> Any:
        return keras.Sequential([keras.Input((WIDE,)), Twins(), layers.Dense(3, "softmax")])

    trained = adapter(twins)
    before = trained.digest()
    first = local(trained, 0)
    total = first.clone()
    for _ in range(2):
        trained.stream(batch(4, 0), 4, 12, 0, Sink(total, adds=True))
    assert torch.equal(total, first + first + first)
    assert trained.digest() == before
    a, b, c, d = torch.split(first[: 4 << 15], 1 << 15)
    values = [torch.from_numpy(weight.numpy()) for weight in trained.model.layers[0].weights]
    assert torch.equal(a, values[1] * (4 / 12))
    assert torch.equal(b, values[0] * (4 / 12))
    assert torch.equal(c, torch.full_like(c, 4 / 12))
    assert torch.equal(d, c)


# ── back ────────────────────────────────────────────────────────────────────────────────────────────────────────
class Keeping(keras.optimizers.SGD):  # type: ignore[misc]
    """Keeps each gradient as it is, for the next step."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.held = [self.add_variable_from_reference(variable, "held") for variable in variables]

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        held = self.held[self._get_variable_index(variable)]
        self.assign_sub(variable, keras.ops.multiply(held, learning_rate))
        self.assign(held, gradient)


@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "not aligned"])
def test_what_an_optimizer_keeps_does_not_change_when_the_vector_is_used_again(offset: int) -> None:
    trained = adapter(wide, Keeping(0.1))
    memory = torch.empty(offset + trained.size(StepKind.TRAIN))
    reduced = memory[offset:]
    for number in range(2):
        trained.micro_batch(batch(4, number), 4, 4, number, reduced)
        kept = reduced.clone()
        assert trained.apply(reduced)
        assert torch.equal(reduced, kept)
        reduced.fill_(float("nan"))
        held = [torch.from_numpy(each.numpy()).reshape(-1) for each in trained.model.optimizer.held]
        assert torch.equal(torch.cat(held), kept[: trained.gradient_size])
    assert trained.is_finite()


# ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_clock_tells_the_graph_the_copies_and_the_optimizers_step_apart() -> None:
    trained = adapter(wide)
    trained.warm_up(batch(2, 0))
    vector = torch.empty(trained.size(StepKind.TRAIN))
    clock.enter(Phase.OTHER)  # threads of other tests share this process's clock, and may have left it in a phase
    clock.take()
    trained.micro_batch(batch(4, 0), 4, 4, 0, vector)
    computed = dict(zip(PHASES, clock.take(), strict=True))
    trained.apply(vector)
    applied = dict(zip(PHASES, clock.take(), strict=True))
    assert computed[Phase.FORWARD] > 0
    assert computed[Phase.COPIES] > 0
    assert computed[Phase.APPLY] == 0
    assert applied[Phase.APPLY] > 0
    assert applied[Phase.FORWARD] == applied[Phase.COPIES] == 0
