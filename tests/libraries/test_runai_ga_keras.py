"""``runai.ga.keras``: rows 16 and 22 to 25 of what a replacement of Run:AI's library must pass, and the tests of the
original restated for Keras 3. Numbers are compared with loops in NumPy."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edt_runner.errors import UsageError
from support.sides import adapter_of, carry, step

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")  # in Keras

ga: Any = importlib.import_module("runai.ga.keras.optimizers")
NAMES = [
    "SGD",
    "RMSprop",
    "Adagrad",
    "Adadelta",
    "Adam",
    "Adamax",
    "Nadam",
    "AdamW",
    "Adafactor",
    "Ftrl",
    "Lion",
    "Muon",
]
X = (np.arange(1, 9, dtype=np.float32) / 8)[:, None]
Y = 2 * X


def line(optimizer: Any) -> Any:
    """y = w x with w = 1 at first."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(optimizer=optimizer, loss="mse")
    return model


def fitted(optimizer: Any, batch_size: int) -> float:
    model = line(optimizer)
    model.fit(X, Y, batch_size=batch_size, shuffle=False, verbose=0)
    return float(model.get_weights()[0][0, 0])


def mean_gradient(w: float, rows: slice) -> float:
    """Of the mean squared error of some rows, by hand."""
    x, y = X[rows, 0].astype(np.float64), Y[rows, 0].astype(np.float64)
    return float(np.mean(2 * (w * x - y) * x))


def given(optimizer: Any, *gradients: float) -> list[float]:
    """A lone variable's values as its gradients come in, one batch's after the other."""
    variable = keras.Variable(1.0)
    values = []
    for gradient in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(gradient, dtype="float32")], [variable])
        values.append(float(variable))
    return values


@pytest.mark.parametrize("by_name", [True, False])
def test_c1_25_four_batches_of_two_move_a_weight_as_one_of_eight(by_name: bool) -> None:
    optimizer = ga.SGD(4, 0.1) if by_name else ga.Optimizer(keras.optimizers.SGD(0.1), 4)
    expected = 1 - 0.1 * mean_gradient(1.0, slice(None))
    assert expected == 1.0796875
    assert fitted(optimizer, batch_size=2) == pytest.approx(expected, abs=1e-7)


def test_c1_25_of_one_step_it_is_the_plain_optimizer_bit_for_bit() -> None:
    gradients = [0.3, -0.7, 0.1]
    plain = given(keras.optimizers.Adam(0.1), *gradients)
    assert given(ga.Adam(steps=1, learning_rate=0.1), *gradients) == plain
    assert given(ga.Optimizer(keras.optimizers.Adam(0.1), 1), *gradients) == plain


@pytest.mark.parametrize("name", NAMES)
def test_c1_25_each_name_steps_as_keras_with_the_mean_gradient_and_is_called_by_it(name: str) -> None:
    kind = getattr(keras.optimizers, name)
    # The means of 3 batches in turn, exact in binary.
    ours = given(getattr(ga, name)(3), 0.5, 0.25, 0.75, -1.0, 0.5, -2.5)
    plain = given(kind(), 0.5, -1.0)
    assert ours == [1.0, 1.0, plain[0], plain[0], plain[0], plain[1]]
    assert type(getattr(ga, name)(3)).__name__ == name
    assert type(ga.Optimizer(kind(), 3)).__name__ == "Optimizer"
    assert type(ga.Optimizer(kind(), 3).optimizer).__name__ == type(getattr(ga, name)(3).optimizer).__name__ == name


def test_adam_over_two_cycles_is_adam_by_hand() -> None:
    gradients = [0.5, 0.25, 0.75, -1.0, 0.5, -2.5]
    w, m, v = 1.0, 0.0, 0.0
    for t, g in enumerate((sum(gradients[:3]) / 3, sum(gradients[3:]) / 3), start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w -= 0.01 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-7)
    assert given(ga.Adam(3, 0.01), *gradients)[-1] == pytest.approx(w, abs=1e-6)


def test_c1_16_the_inner_optimizer_steps_at_every_fourth_call_and_counts_its_own_steps() -> None:
    optimizer = ga.SGD(4, 1.0)
    values = given(optimizer, *[1.0] * 8)
    assert values == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, -1.0]
    assert int(optimizer.iterations) == 2


def test_schedules_and_averages_go_by_updates() -> None:
    halves = keras.optimizers.schedules.ExponentialDecay(1.0, 1, 0.5)
    assert given(ga.SGD(2, halves), *[1.0] * 4)[-1] == 1 - 1.0 - 0.5
    averaging = ga.SGD(2, 1.0, use_ema=True, ema_momentum=0.5)
    variable = keras.Variable(1.0)
    for _ in range(4):
        averaging.apply([keras.ops.ones(())], [variable])
    averaging.finalize_variable_values([variable])
    plain = keras.optimizers.SGD(1.0, use_ema=True, ema_momentum=0.5)
    twin = keras.Variable(1.0)
    for _ in range(2):
        plain.apply([keras.ops.ones(())], [twin])
    plain.finalize_variable_values([twin])
    assert float(variable) == float(twin)


def test_c1_24_an_unfinished_cycle_is_carried_on_or_flushed_with_what_there_is() -> None:
    carried = ga.SGD(4, 1.0)
    assert given(carried, *[1.0] * 3) == [1.0, 1.0, 1.0]
    flushed = ga.SGD(4, 1.0)
    variable = keras.Variable(1.0)
    for gradient in (1.0, 2.0, 6.0):
        flushed.apply([keras.ops.convert_to_tensor(gradient)], [variable])
    assert flushed.flush() and float(variable) == 1.0 - 3.0
    assert not flushed.flush()
    for _ in range(4):
        flushed.apply([keras.ops.ones(())], [variable])
    assert float(variable) == -2.0 - 1.0


def test_c1_22_an_optimizer_that_is_wrapped_keeps_its_momentum() -> None:
    inner = keras.optimizers.SGD(1.0, momentum=0.5)
    variable = keras.Variable(0.0)
    inner.apply([keras.ops.ones(())], [variable])
    wrapped = ga.Optimizer(inner, 2)
    for _ in range(2):
        wrapped.apply([keras.ops.ones(())], [variable])
    assert float(variable) == -1.0 - (0.5 * 1.0 + 1.0)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "2", None])
def test_c1_23_steps_that_are_none_are_refused_when_it_is_made(steps: Any) -> None:
    with pytest.raises(UsageError, match=r"steps: got .* at least 1"):
        ga.Optimizer(keras.optimizers.SGD(), steps)
    with pytest.raises(ValueError, match="steps"):
        ga.Adam(steps)


def test_what_is_no_optimizer_or_accumulates_already_is_refused() -> None:
    with pytest.raises(UsageError, match="optimizer: got 'sgd'"):
        ga.Optimizer("sgd", 2)
    with pytest.raises(UsageError, match="accumulates 3 batches by itself"):
        ga.Optimizer(keras.optimizers.SGD(gradient_accumulation_steps=3), 2)
    with pytest.raises(UsageError, match="accumulates 4 batches by itself"):
        ga.Optimizer(ga.SGD(4), 2)


def test_attributes_are_those_of_the_inner_optimizer() -> None:
    optimizer = ga.Adam(5, learning_rate=0.25, beta_1=0.5, clipnorm=2.0)
    assert (optimizer.beta_1, optimizer.clipnorm, optimizer.steps) == (0.5, 2.0, 5)
    assert float(optimizer.lr) == float(optimizer.learning_rate) == 0.25
    optimizer.learning_rate = 0.5
    assert float(optimizer.optimizer.learning_rate) == 0.5
    with pytest.raises(AttributeError, match="nonsense"):
        optimizer.nonsense  # noqa: B018


def test_a_config_makes_the_same_optimizer_again() -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    named = ga.SGD(3, schedule, momentum=0.75)
    again = type(named).from_config(named.get_config())
    assert (again.steps, again.momentum, again.get_config()) == (3, 0.75, named.get_config())
    around = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(ga.Optimizer(keras.optimizers.RMSprop(0.2, rho=0.5), 4))
    )
    assert (type(around), around.steps, around.rho, type(around.optimizer).__name__) == (
        ga.Optimizer,
        4,
        0.5,
        "RMSprop",
    )


@pytest.mark.parametrize("named", [True, False])
def test_a_model_saved_in_the_middle_of_a_cycle_goes_on_as_if_it_had_not_been(named: bool, tmp_path: Path) -> None:
    model = line(ga.Adam(3, 0.1) if named else ga.Optimizer(keras.optimizers.Adam(0.1), 3))
    model.fit(X, Y, batch_size=2, shuffle=False, verbose=0)  # four batches: one is waiting
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is type(model.optimizer) and loaded.optimizer.steps == 3
    for one in (model, loaded):
        one.fit(X, Y, batch_size=2, shuffle=False, verbose=0)
    assert loaded.get_weights()[0] == model.get_weights()[0] != 1.0
    weights = model.optimizer.get_weights()
    loaded.optimizer.set_weights([np.zeros_like(weight) for weight in weights])
    loaded.optimizer.set_weights(weights)
    assert all(np.array_equal(a, b) for a, b in zip(loaded.optimizer.get_weights(), weights, strict=True))
    with pytest.raises(UsageError, match="weights: got 0 arrays"):
        loaded.optimizer.set_weights([])


def test_a_model_is_saved_in_an_hdf5_file_too(tmp_path: Path) -> None:
    model = line(ga.Adam(np.int64(3), 0.1))
    model.fit(X, Y, batch_size=2, shuffle=False, verbose=0)
    model.save(tmp_path / "model.h5")
    loaded = keras.models.load_model(tmp_path / "model.h5", compile=False)
    assert loaded.get_weights()[0] == model.get_weights()[0]


def test_gradients_of_an_embedding_and_weights_without_one_are_taken_too() -> None:
    words = np.asarray([[0, 1], [1, 2], [3, 3], [0, 2]])

    def trained(optimizer: Any, batch_size: int) -> list[Any]:
        keras.utils.set_random_seed(3)
        layers = keras.layers
        model = keras.Sequential(
            [keras.Input((2,), dtype="int32"), layers.Embedding(5, 2), layers.Flatten(), layers.Dense(1)]
        )
        model.compile(optimizer=optimizer, loss="mse")
        model.fit(words, np.ones((4, 1)), batch_size=batch_size, shuffle=False, verbose=0)
        return list(model.get_weights())

    for ours, plain in zip(trained(ga.SGD(2, 0.5), 2), trained(keras.optimizers.SGD(0.5), 4), strict=True):
        np.testing.assert_allclose(ours, plain, atol=1e-7)


def test_in_our_engine_it_steps_as_in_fit_and_its_sums_travel_with_the_state() -> None:
    def adapter() -> Any:
        return adapter_of(line(ga.Adam(2, 0.1)), "mse", ga.Adam(2, 0.1), [], (X, Y))

    here, there, plain = adapter(), adapter(), line(ga.Adam(2, 0.1))
    halves = (X[:4], Y[:4]), (X[4:], Y[4:])
    for number in range(4):
        step(here, *halves)
        plain.train_on_batch(X, Y)
        if number == 2:  # in the middle of a cycle
            carry(here, there)
    step(there, *halves)
    assert there.digest() == here.digest()
    np.testing.assert_allclose(here.model.get_weights()[0], plain.get_weights()[0], atol=1e-6)


def test_the_hooks_of_keras_2_say_that_they_are_gone() -> None:
    sys.modules.pop("runai.ga.keras.hooks", None)
    with pytest.raises(ImportError, match=r"Keras 3 does not have; runai.ga.keras.optimizers"):
        importlib.import_module("runai.ga.keras.hooks")
