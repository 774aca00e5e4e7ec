"""What Keras's ``fit`` does besides its steps, which a user counts on without asking for it; both generations."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edt_runner.frameworks.tensorflow.keras_versions import keras_version_of
from edt_runner.frameworks.tensorflow.trainable import KerasTrainable
from edt_runner.schedule import StepKind
from support.sides import Keras, adapter_of, carry, step

pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")  # in Keras


@pytest.fixture(params=["keras", "tf_keras"])
def side(request: pytest.FixtureRequest) -> Keras:
    pytest.importorskip(request.param)
    return Keras(request.param)


def rows(count: int) -> Any:
    return np.random.default_rng(0).standard_normal((count, 8), dtype=np.float32)


def test_a_model_that_is_not_told_of_training_drops_out_where_fit_would(side: Keras) -> None:
    """Keras 2 tells its layers all the same, Keras 3 does not."""
    keras = importlib.import_module(side.keras.__name__)

    class Untold(keras.Model):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.out = keras.layers.Dropout(0.5), keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.out(self.drop(x))

    x, y = rows(4), rows(4)[:, :1]
    plain = Untold()
    plain.compile(optimizer=keras.optimizers.SGD(0.0), loss="mse")
    in_fit = len({float(plain.train_on_batch(x, y)) for _ in range(4)}) > 1
    adapter = adapter_of(Untold(), "mse", "sgd", [], (x, y))
    vectors = torch.empty(2, adapter.size(StepKind.TRAIN))
    for seed, local in enumerate(vectors):
        adapter.micro_batch((x, y), 4, 4, seed, local)
    assert in_fit is (side.keras.__name__ == "tf_keras")
    assert torch.equal(vectors[0], vectors[1]) is not in_fit


@pytest.mark.parametrize("wrapped", [False, True])
def test_averaged_weights_are_what_a_training_ends_with(side: Keras, wrapped: bool, tmp_path: Path) -> None:
    """In the final files and in the driver; the engine that writes the files goes on with its own."""
    keras = side.keras

    def fresh() -> tuple[Any, Any]:
        optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)
        return side.model("linear"), side._scaled(optimizer) if wrapped else optimizer

    x, y = side.batch(1, rows=4)
    plain, optimizer = fresh()
    plain.compile(optimizer=optimizer, loss="mse")
    plain.fit(x, y, batch_size=4, epochs=3, verbose=0)
    ours, optimizer = fresh()
    adapter = adapter_of(ours, "mse", optimizer, [], side.batch(0))
    for _ in range(3):
        step(adapter, (x[:1], y[:1]), (x[1:], y[1:]))
    before = adapter.digest()
    adapter.save_for_user(tmp_path, "model_epoch_final")
    assert adapter.digest() == before
    loaded = keras.models.load_model(tmp_path / "model_epoch_final.keras")
    moving = [weight.copy() for weight in ours.get_weights()]
    KerasTrainable(keras_version_of(ours), ours).finish()
    for final, driver, its, last in zip(
        loaded.get_weights(), ours.get_weights(), plain.get_weights(), moving, strict=True
    ):
        np.testing.assert_allclose(final, its, atol=1e-6)
        np.testing.assert_array_equal(final, driver)
        assert not np.allclose(last, driver, atol=1e-3)


def test_a_weight_without_a_name_is_the_same_in_every_process(side: Keras) -> None:
    """Keras numbers such weights in the order in which a process makes them: one has made more than the other."""
    keras = importlib.import_module(side.keras.__name__)

    class Own(keras.layers.Layer):  # type: ignore[name-defined,misc]
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], 1))

        def call(self, x: Any) -> Any:
            return keras.backend.dot(x, self.kernel) if hasattr(keras.backend, "dot") else x @ self.kernel

    batch = rows(4), rows(4)[:, :1]
    here, there = (adapter_of(keras.Sequential([Own()]), "mse", "sgd", [], batch) for _ in range(2))
    step(here, batch)
    carry(here, there)
    assert there.digest() == here.digest()


def test_losses_weigh_what_the_model_was_compiled_with(side: Keras) -> None:
    """``FabricModel`` has no argument for it."""
    keras = side.keras

    def net() -> Any:
        inputs = keras.Input((8,))
        ones = {"kernel_initializer": "ones", "activation": "tanh"}
        model = keras.Model(inputs, [keras.layers.Dense(1, name=name, **ones)(inputs) for name in ("first", "second")])
        model.compile(optimizer="adam", loss=["mse", "mae"], loss_weights=[0.25, 2.0])
        return model

    x = rows(4)
    batch = x, (x[:, :1], x[:, 1:2])
    values = step(adapter_of(net(), ["mse", "mae"], "sgd", [], batch), batch)
    first, second = values["first_loss"], values["second_loss"]
    assert values["loss"] == pytest.approx(0.25 * first + 2.0 * second)
