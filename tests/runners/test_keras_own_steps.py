"""A model's own train_step and test_step: called on micro-batches with the result of plain Keras; or refused."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

from edt_runner.errors import UsageError
from edt_runner.frameworks.computing import Asked
from edt_runner.frameworks.tensorflow.adapter import TensorFlowAdapter
from edt_runner.schedule import StepKind
from fabric_model.keras import trainable
from support.sides import adapter_of, step

tf: Any = pytest.importorskip("tensorflow")


@pytest.fixture(params=["keras", pytest.param("tf_keras", marks=pytest.mark.extended)])
def keras(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


def rows(count: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    return (
        generator.standard_normal((count, 4), dtype=np.float32),
        generator.standard_normal((count, 1), dtype=np.float32),
    )


def in_one(*parts: Any) -> Any:
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def apply(model: Any, gradients: Any, variables: Any) -> None:
    """Each version's own way."""
    if hasattr(model.optimizer, "apply"):
        model.optimizer.apply(gradients, variables)
    else:
        model.optimizer.apply_gradients(zip(gradients, variables, strict=True))


def guide(keras: Any) -> Any:
    """As in Keras's guide: its own loss, its own trackers, metrics of ``compile``."""

    class Guide(keras.Model):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.out = keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)
            self.norm = keras.layers.BatchNormalization(momentum=0.5)
            self.tracker = keras.metrics.Mean(name="loss")
            self.distance = keras.metrics.MeanAbsoluteError(name="distance")

        def call(self, x: Any, training: bool = False) -> Any:
            return self.out(self.norm(self.hidden(x), training=training))

        @property
        def metrics(self) -> Any:
            return [self.tracker, self.distance]

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                found = self(x, training=True)
                loss = tf.reduce_mean(tf.square(y - found))
            apply(self, tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            self.tracker.update_state(loss)
            self.distance.update_state(y, found)
            return {"loss": self.tracker.result(), "distance": self.distance.result(), "most": tf.reduce_max(found)}

        def test_step(self, data: Any) -> Any:
            x, y = data
            found = self(x, training=False)
            self.distance.update_state(y, found)
            return {"loss": 2 * tf.reduce_mean(tf.square(y - found)), "distance": self.distance.result()}

    keras.utils.set_random_seed(0)
    return Guide()


def test_the_micro_batches_of_a_train_step_make_the_step_that_keras_makes_of_all_rows(keras: Any) -> None:
    parts = [rows(2, 1), rows(4, 2)]
    ours, plain = guide(keras), guide(keras)
    adapter = adapter_of(ours, None, keras.optimizers.Adam(0.1), None, parts[0])
    plain(parts[0][0])
    plain.set_weights(ours.get_weights())
    plain.compile(optimizer=keras.optimizers.Adam(0.1))
    values = step(adapter, *parts)
    alone = [_told(plain, part) for part in parts]
    assert set(values) == {"loss", "distance", "most"}
    expected = {name: 2 / 6 * alone[0][name] + 4 / 6 * alone[1][name] for name in values}
    assert values == pytest.approx(expected, rel=1e-4)
    assert int(ours.optimizer.iterations) == 1
    assert adapter.take_warnings() == []


def _told(plain: Any, part: Any) -> Any:
    """What a train_step of one part tells, from the first weights."""
    kept = plain.get_weights()
    plain.reset_metrics()
    told = plain.fit(*part, batch_size=len(part[0]), verbose=0).history
    plain.set_weights(kept)
    return {name: float(np.asarray(value[-1])) for name, value in told.items()}


def test_weights_after_a_step_are_those_of_keras(keras: Any) -> None:
    def fresh() -> Any:
        class Own(keras.Sequential):  # type: ignore[name-defined,misc]
            def train_step(self, data: Any) -> Any:
                x, y = data
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
                apply(self, tape.gradient(loss, self.trainable_variables), self.trainable_variables)
                return {"loss": loss}

        keras.utils.set_random_seed(0)
        return Own([keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])

    parts = [rows(2, 1), rows(4, 2)]
    ours, plain = fresh(), fresh()
    adapter = adapter_of(ours, "mse", keras.optimizers.Adam(0.1), [], parts[0])
    plain.compile(optimizer=keras.optimizers.Adam(0.1), loss="mse")
    for _ in range(2):
        step(adapter, *parts)
        plain.fit(*in_one(*parts), batch_size=6, verbose=0)
    for weight, its in zip(ours.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(weight, its, atol=1e-5)


def test_a_test_step_is_called_and_a_number_that_it_does_not_return_is_left_out(keras: Any) -> None:
    parts = [rows(2, 1), rows(4, 2)]
    adapter = adapter_of(guide(keras), None, "sgd", None, parts[0])
    sums = np.zeros(adapter.width)
    for part in parts:
        place = torch.empty(adapter.size(StepKind.VALIDATE))
        adapter.evaluate(part, len(part[0]), 0, place)
        sums += adapter.sums(StepKind.VALIDATE, place)
    x, y = in_one(*parts)
    found = np.asarray(adapter.model(x, training=False))
    values = adapter.values(list(sums))
    assert values == pytest.approx(
        {"loss": 2 * np.square(y - found).mean(), "distance": np.abs(y - found).mean()}, rel=1e-4
    )


def test_a_scaled_loss_is_scaled_once(keras: Any) -> None:
    """With ``scale_loss`` and its like if the user asks for it, in the way of each version."""

    class Scaled(keras.Sequential):  # type: ignore[name-defined,misc]
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
                old = hasattr(self.optimizer, "get_scaled_loss")
                scaled = self.optimizer.get_scaled_loss(loss) if old else self.optimizer.scale_loss(loss)
            gradients = tape.gradient(scaled, self.trainable_variables)
            if old:
                gradients = self.optimizer.get_unscaled_gradients(gradients)
            apply(self, gradients, self.trainable_variables)
            return {"loss": loss}

    weights = []
    for kind in (Scaled, keras.Sequential):
        keras.utils.set_random_seed(0)
        model = kind([keras.Input((4,)), keras.layers.Dense(1)])
        inner = keras.optimizers.SGD(0.1)
        optimizer = keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=8.0, dynamic_growth_steps=2)
        adapter = adapter_of(model, "mse", optimizer, [], rows(2, 1))
        for seed in range(3):
            step(adapter, rows(2, seed), rows(2, seed + 9))
        weights.append(model.get_weights())
        assert adapter.gradient_scale == 16.0
    for ours, theirs in zip(*weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_model_without_a_call_trains_by_its_train_step(keras: Any) -> None:
    class Pair(keras.Model):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = keras.layers.Dense(2), keras.layers.Dense(4)

        def train_step(self, data: Any) -> Any:
            x, _ = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(x - self.decoder(self.encoder(x))))
            apply(self, tape.gradient(loss, self.trainable_weights), self.trainable_weights)
            return {"loss": loss}

    model = Pair()
    chosen = trainable(model, keras.optimizers.SGD(0.1), None, Asked(None))
    adapter = TensorFlowAdapter(chosen.keras, model, rows(2, 1), validates=False)
    adapter.warm_up(rows(2, 1))
    losses = [step(adapter, rows(4, 1))["loss"] for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


def twice(self: Any, x: Any, y: Any, tape: Any, loss: Any) -> Any:
    first, *others = self.trainable_variables
    gradients = tape.gradient(loss, self.trainable_variables)
    apply(self, gradients[:1], [first])
    apply(self, gradients[1:], others)
    return {"loss": loss}


def never(self: Any, x: Any, y: Any, tape: Any, loss: Any) -> Any:
    return {"loss": loss}


def by_hand(self: Any, x: Any, y: Any, tape: Any, loss: Any) -> Any:
    gradients = tape.gradient(loss, self.trainable_variables)
    apply(self, gradients, self.trainable_variables)
    self.trainable_variables[0].assign(0.1 * gradients[0])
    return {"loss": loss}


def without_loss(self: Any, x: Any, y: Any, tape: Any, loss: Any) -> Any:
    apply(self, tape.gradient(loss, self.trainable_variables), self.trainable_variables)
    return {"distance": loss}


def in_a_function(self: Any, x: Any, y: Any, tape: Any, loss: Any) -> Any:
    gradients = tape.gradient(loss, self.trainable_variables)
    tf.function(lambda: apply(self, gradients, self.trainable_variables), autograph=False)()
    return {"loss": loss}


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (twice, "more than once, takes one call with all gradients"),
        (never, "gives no gradients to self.optimizer, takes one that calls self.optimizer.apply"),
        (by_hand, "itself changes .*kernel.*, by assign or by another optimizer"),
        (without_loss, "returns a dict of 'distance', takes a dict of numbers by name with 'loss'"),
        (in_a_function, "inside a tf.function, a loop or a branch"),
    ],
)
def test_what_engines_cannot_compute_together_is_refused_with_what_to_write(rest: Any, words: str) -> None:
    keras = importlib.import_module("keras")

    class Own(keras.Sequential):  # type: ignore[name-defined,misc]
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
            return rest(self, x, y, tape, loss)

    with pytest.raises(UsageError, match=rf"model: Own.train_step .*{words}"):
        adapter = adapter_of(
            Own([keras.Input((4,)), keras.layers.Dense(1)]), "mse", keras.optimizers.SGD(0.1), [], rows(2, 1)
        )
        adapter.warm_up(rows(2, 1))


def test_a_compile_that_takes_other_arguments_is_refused_with_what_to_give(keras: Any) -> None:
    class Two(keras.Sequential):  # type: ignore[name-defined,misc]
        def compile(self, first: Any, second: Any) -> None:
            super().compile()

        def train_step(self, data: Any) -> Any:
            return {}

    with pytest.raises(UsageError, match=r"model: Two has a compile of its own.*takes one with Keras's arguments"):
        trainable(Two([keras.Input((4,)), keras.layers.Dense(1)]), "sgd", None, Asked(None))
