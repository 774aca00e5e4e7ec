"""What ``train()`` is asked for with a Keras model: schedules, clipping, precision, XLA; and losses that are sums."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edt_runner.errors import NotFinite, UsageError
from edt_runner.frameworks.computing import Asked
from edt_runner.frameworks.finite import judging
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.tensorflow.adapter import TensorFlowAdapter
from edt_runner.schedule import StepKind
from fabric_model.keras import trainable
from support.sides import adapter_of, carry, step

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")
"""Keras 3's own, as it reads the rate."""


@pytest.fixture(params=["keras", pytest.param("tf_keras", marks=pytest.mark.extended)])
def keras(request: pytest.FixtureRequest) -> Any:
    return pytest.importorskip(request.param)


class Data:
    """Four samples, as ``Samples`` gives them."""

    test_units = 4

    def probe_batch(self, units: int) -> Any:
        return rows(units, 0)


def rows(count: int, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    inputs = generator.standard_normal((count, 4), dtype=np.float32)
    return inputs, generator.standard_normal((count, 1), dtype=np.float32)


def net(keras: Any, **layer: Any) -> Any:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, **layer), keras.layers.Dense(1)])


def training(keras: Any, optimizer: Any, model: Any = None, loss: Any = "mse", **options: Any) -> Any:
    """An adapter of a model with these options, checked as ``train()`` checks them."""
    model = net(keras) if model is None else model
    chosen = trainable(model, optimizer, None, Asked(loss, []))
    asked = chosen.checked_options(StepOptions(**options))
    data: Any = Data()
    return chosen.adapter(data, on_device=False, options=asked)


# ── schedules ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_schedule_moves_the_rate_by_steps_and_travels(keras: Any, tmp_path: Path) -> None:
    def adapter() -> Any:
        schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
        optimizer = keras.optimizers.SGD(0.7, momentum=0.9)
        return training(keras, optimizer, lr_scheduler=schedule, lr_scheduler_interval="step")

    ours, joining, plain = adapter(), adapter(), net(keras)
    plain.compile(
        optimizer=keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5), momentum=0.9),
        loss="mse",
    )
    told = []
    for seed in range(3):
        if seed == 2:
            carry(ours, joining)
            ours = joining
        step(ours, rows(4, seed))
        told.append(ours.details()["learning_rate"])
        plain.train_on_batch(*rows(4, seed))
    assert told == pytest.approx([0.1, 0.05, 0.025])
    for weight, its in zip(ours.model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(weight, its, atol=1e-6)
    ours.save_for_user(tmp_path, "model_epoch_final")
    assert {path.name for path in tmp_path.iterdir()} == {"model_epoch_final", "model_epoch_final.keras"}


def test_a_function_moves_the_rate_by_epochs(keras: Any) -> None:
    rates = []
    for function in (lambda epoch, rate: rate * 0.5, lambda epoch: 0.1 / (epoch + 1)):
        chosen = trainable(net(keras), keras.optimizers.SGD(0.2), None, Asked("mse", []))
        (callback,) = chosen.epoch_callbacks(chosen.checked_options(StepOptions(lr_scheduler=function)))
        callback.attach(chosen.model, chosen.optimizer, 3, 1)
        for epoch in range(2):
            callback.epoch_begin(epoch)
            rates.append(float(np.asarray(chosen.optimizer.learning_rate)))
            callback.epoch_end(epoch, {"loss": 1.0}, False)
    assert rates == pytest.approx([0.1, 0.05, 0.1, 0.05])


def test_a_plateau_rests_without_a_validation_and_misses_no_metric_in_silence(keras: Any) -> None:
    plateau = keras.callbacks.ReduceLROnPlateau("val_loss", factor=0.5, patience=1)
    chosen = trainable(net(keras), keras.optimizers.SGD(0.2), None, Asked("mse", []))
    (callback,) = chosen.epoch_callbacks(chosen.checked_options(StepOptions(lr_scheduler=plateau)))
    callback.attach(chosen.model, chosen.optimizer, 9, 1)
    callback.train_begin()
    for epoch, values in enumerate([{"val_loss": 1.0}, {"loss": 1.0}, {"loss": 1.0}, {"val_loss": 1.0}]):
        assert float(np.asarray(chosen.optimizer.learning_rate)) == pytest.approx(0.2)
        callback.epoch_end(epoch, values, False)
    assert float(np.asarray(chosen.optimizer.learning_rate)) == pytest.approx(0.1)
    with pytest.raises(UsageError, match="lr_scheduler: got a callback whose monitor is 'val_loss', takes one of"):
        callback.epoch_end(4, {"loss": 1.0, "val_accuracy": 1.0}, False)


# ── clipping ────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("scaled", [False, True])
def test_clipping_acts_on_the_gradient_of_the_whole_step(keras: Any, scaled: bool) -> None:
    """As Keras's own limits on the optimizer do, also behind a loss that is scaled; one after the other here."""
    parts = [rows(2, 1), rows(4, 2)]
    whole = tuple(np.concatenate(column) for column in zip(*parts, strict=True))

    def weights(options: dict[str, float], **own: float) -> Any:
        optimizer = keras.optimizers.SGD(1.0, **own)
        if scaled:
            optimizer = keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=64.0)
        adapter = training(keras, optimizer, **options)
        step(adapter, *(parts if options else [whole]))
        return adapter

    pairs: list[tuple[dict[str, float], dict[str, float]]] = [
        ({"clip_grad_norm": 0.5}, {"global_clipnorm": 0.5}),
        ({"clip_grad_value": 0.1}, {"clipvalue": 0.1}),
    ]
    for options, own in pairs:
        ours, theirs = weights(options), weights({}, **own)
        for weight, its in zip(ours.model.get_weights(), theirs.model.get_weights(), strict=True):
            np.testing.assert_allclose(weight, its, atol=1e-5)
    assert weights({"clip_grad_norm": 0.5}).details()["grad_norm"] > 0.5


# ── precision ───────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_step_that_overflows_is_left_out_with_a_smaller_scale_and_all_else_as_it_was(keras: Any) -> None:
    keras.utils.set_random_seed(0)
    layers = [keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
    optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(0.1), initial_scale=8.0)
    adapter = judging(training(keras, optimizer, keras.Sequential(layers)), "stop")
    step(adapter, rows(2, 1), rows(2, 2))
    before = adapter.model.get_weights()  # type: ignore[attr-defined]
    local = torch.empty(adapter.size(StepKind.TRAIN))
    adapter.micro_batch(rows(4, 3), 4, 4, 0, local)
    local[0] = math.inf
    for scale in (8.0, 4.0, 2.0):
        assert adapter.gradient_scale == scale
        adapter.apply(local)
    for weight, its in zip(adapter.model.get_weights(), before, strict=True):  # type: ignore[attr-defined]
        np.testing.assert_array_equal(weight, its)
    with pytest.raises(NotFinite):  # the scale is 1: it is not the scale that is too large
        adapter.apply(local)


def test_half_precision_trains_under_a_policy_of_keras(keras: Any) -> None:
    for policy, precision in (("mixed_bfloat16", "bf16"), ("mixed_float16", "fp16")):
        keras.mixed_precision.set_global_policy(policy)
        try:
            adapter, joining = (training(keras, keras.optimizers.Adam(0.01), precision=precision) for _ in range(2))
        finally:
            keras.mixed_precision.set_global_policy("float32")
        losses = [step(adapter, rows(4, 1), rows(4, 2))["loss"] for _ in range(6)]
        assert losses[-1] < losses[0]
        assert adapter.absorbs(torch.zeros(1)) is (precision == "fp16")
        carry(adapter, joining)
        for each in (adapter, joining):
            step(each, rows(4, 3))
        assert adapter.digest() == joining.digest()


# ── XLA ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_compiled_model_has_the_same_bits_in_every_process_and_near_ones_as_without(keras: Any) -> None:
    plain, one, other = (training(keras, keras.optimizers.SGD(0.1), compile=made) for made in (False, True, True))
    for adapter in (plain, one, other):
        adapter.warm_up(rows(2, 0))
        step(adapter, rows(2, 1), rows(4, 2))
    assert one.digest() == other.digest()
    for weight, its in zip(one.model.get_weights(), plain.model.get_weights(), strict=True):
        np.testing.assert_allclose(weight, its, atol=1e-5)


def test_what_xla_cannot_compile_is_refused_by_name() -> None:
    keras = pytest.importorskip("keras")
    tf = pytest.importorskip("tensorflow")

    class Worded(keras.layers.Layer):  # type: ignore[name-defined,misc]
        def call(self, x: Any) -> Any:
            return x + tf.strings.to_number(tf.strings.as_string(x))

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1), Worded()])
    adapter = training(keras, "sgd", model, compile=True)
    with pytest.raises(UsageError, match="compile: got True, takes False: XLA cannot compile this model here"):
        adapter.warm_up(rows(2, 0))


# ── losses ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_loss_that_is_a_sum_gives_the_gradient_of_the_sum_over_the_whole_step(keras: Any) -> None:
    parts = [rows(2, 1), rows(4, 2)]
    whole = tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    ours, plain = net(keras), net(keras)
    adapter = adapter_of(ours, keras.losses.MeanSquaredError(reduction="sum"), keras.optimizers.SGD(0.01), [], parts[0])
    plain.compile(optimizer=keras.optimizers.SGD(0.01), loss=keras.losses.MeanSquaredError(reduction="sum"))
    values = step(adapter, *parts)
    total = float(np.asarray(plain.train_on_batch(*whole)).reshape(-1)[0])
    for weight, its in zip(ours.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(weight, its, atol=1e-5)
    assert values["loss"] == pytest.approx(total / 6, rel=1e-4)  # a sample's


def test_a_loss_may_be_the_mean_over_the_tokens_of_the_whole_step(keras: Any) -> None:
    """Sample weights say which places of a text have a token; a short micro-batch weighs less."""

    def text_net() -> Any:
        keras.utils.set_random_seed(0)
        inputs = keras.Input((6,), dtype="int32")
        return keras.Model(inputs, keras.layers.Dense(5)(keras.layers.Embedding(9, 4)(inputs)))

    def text(seed: int, *lengths: int) -> Any:
        generator = np.random.default_rng(seed)
        words, targets = generator.integers(0, 9, (2, 6)), generator.integers(0, 5, (2, 6))
        return words, targets, np.greater.outer(lengths, range(6)).astype(np.float32)

    parts = [text(1, 6, 1), text(2, 2, 1), text(3, 5, 5)]
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    chosen = trainable(text_net(), keras.optimizers.SGD(0.5), None, Asked(loss, [], loss_reduction="token"))
    adapter = TensorFlowAdapter(chosen.keras, chosen.model, parts[0], sums=True, tokens=chosen.tokens)
    vectors = []
    for part in parts:
        vectors.append(torch.empty(adapter.size(StepKind.TRAIN)))
        adapter.micro_batch(part, 2, 6, 0, vectors[-1])
    reduced = torch.stack(vectors).sum(dim=0)
    adapter.apply(reduced)

    plain, whole = text_net(), tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    plain.compile(optimizer=keras.optimizers.SGD(0.5 / 20), loss=loss)  # 20 tokens in all
    total = float(np.asarray(plain.train_on_batch(*whole)).reshape(-1)[0])
    for weight, its in zip(adapter.model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(weight, its, atol=1e-5)
    sums = adapter.sums(StepKind.TRAIN, reduced)
    assert sums[-1] == 20
    assert adapter.values(sums) == pytest.approx({"loss": total / 20}, rel=1e-4)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────
WRONG: list[tuple[Callable[[Any], dict[str, Any]], str]] = [
    (
        lambda k: {"lr_scheduler": k.optimizers.schedules.CosineDecay(0.1, 9)},
        "lr_scheduler_interval: got 'epoch' with CosineDecay, takes 'step'",
    ),
    (
        lambda k: {"lr_scheduler": lambda epoch: 0.1, "lr_scheduler_interval": "step"},
        "lr_scheduler_interval: got 'step' with function, takes 'epoch'",
    ),
    (lambda k: {"lr_scheduler": k.callbacks.EarlyStopping()}, "lr_scheduler: got .*EarlyStopping, takes a Learning"),
    (lambda k: {"lr_scheduler": k.callbacks.ReduceLROnPlateau}, "lr_scheduler: got the class ReduceLROnPlateau"),
    (lambda k: {"lr_scheduler": 0.1}, "lr_scheduler: got builtins.float, takes a LearningRateSchedule"),
    (
        lambda k: {
            "optimizer": k.optimizers.SGD(k.optimizers.schedules.CosineDecay(0.1, 9)),
            "lr_scheduler": lambda epoch: 0.1,
        },
        "lr_scheduler: got function with an optimizer whose learning rate is a schedule already",
    ),
    (
        lambda k: {"lr_scheduler": k.callbacks.ReduceLROnPlateau("loss"), "lr_scheduler_metric": "val_accuracy"},
        "lr_scheduler_metric: got 'val_accuracy', takes 'loss', the callback's monitor",
    ),
    (
        lambda k: {"optimizer": k.optimizers.SGD(0.1, global_clipnorm=2.0), "clip_grad_norm": 1.0},
        "clip_grad_norm: got 1 with an optimizer whose global_clipnorm is 2, takes one of the two",
    ),
    (lambda k: {"precision": "bf16"}, r"precision: got 'bf16' .*set_global_policy\(\"mixed_bfloat16\"\)"),
    (
        lambda k: {"precision": "fp16", "model": net(k, dtype="mixed_float16")},
        "precision: got 'fp16' with a model whose loss is not scaled",
    ),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG)
def test_what_contradicts_is_refused_with_what_to_write(keras: Any, wrong: Any, words: str) -> None:
    asked = {"optimizer": keras.optimizers.SGD(0.1), **wrong(keras)}
    with pytest.raises(UsageError, match=words):
        training(keras, **asked)


@pytest.mark.parametrize(
    ("loss", "asked", "words"),
    [
        ({"reduction": None}, {}, "loss_function: got a loss with reduction=.*, takes 'sum_over_batch_size' or 'sum'"),
        ({}, {"loss_reduction": "token"}, "loss_reduction: got 'token', takes 'sample', or .*reduction='sum'.*mask"),
        ({}, {"loss_reduction": "sum"}, "loss_reduction: got 'sum', takes 'sample', or with it .*reduction='sum'"),
        ({"reduction": "sum"}, {"token_count": len}, "token_count: got a value, takes None with loss_reduction"),
        ({}, {"training_step": print}, "training_step: got a value, takes None.*a train_step"),
    ],
)
def test_a_reduction_is_that_of_the_loss_object(loss: Any, asked: Any, words: str) -> None:
    keras = pytest.importorskip("keras")
    with pytest.raises(UsageError, match=words):
        trainable(net(keras), "sgd", None, Asked(keras.losses.MeanSquaredError(**loss), [], **asked))


# ── custom objects ──────────────────────────────────────────────────────────────────────────────────────────────
def test_a_model_of_ones_own_classes_is_written_so_that_plain_keras_loads_it(keras: Any, tmp_path: Path) -> None:
    """In another process, which knows nothing of the platform."""
    definitions = tmp_path / "mine.py"
    definitions.write_text(
        f"""
import {keras.__name__} as keras

class Doubled(keras.layers.Layer):
    def __init__(self, factor=2.0, **named):
        super().__init__(**named)
        self.factor = factor
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], 1), name="kernel")
        super().build(shape)
    def call(self, x):
        return self.factor * (x @ self.kernel)
    def get_config(self):
        return dict(super().get_config(), factor=self.factor)

def far(y_true, y_pred):
    return keras.losses.mean_squared_error(y_true, y_pred) * 3

class Most(keras.metrics.Mean):
    def __init__(self, name="most", **named):
        super().__init__(name=name, **named)
    def update_state(self, y_true, y_pred, sample_weight=None):
        return super().update_state(y_pred)

OBJECTS = {{"Doubled": Doubled, "far": far, "Most": Most}}
"""
    )
    space: dict[str, Any] = {"__name__": f"mine_{keras.__name__}"}
    exec(definitions.read_text(), space)  # noqa: S102 - the user's module, in this process, too
    model = keras.Sequential([keras.Input((4,)), space["Doubled"](3.0)])
    chosen = trainable(model, "sgd", space["OBJECTS"], Asked("far", ["Most"]))
    data: Any = Data()
    adapter = chosen.adapter(data, on_device=False)
    assert set(step(adapter, rows(4, 1))) == {"loss", "most"}
    adapter.save_for_user(tmp_path, "model_epoch_final")
    x, y = rows(4, 2)
    np.savez(tmp_path / "batch.npz", x=x, y=y)
    code = (
        f"import numpy as np, {keras.__name__} as keras, mine\n"
        "model = keras.models.load_model('model_epoch_final.keras', custom_objects=mine.OBJECTS)\n"
        "batch = np.load('batch.npz')\n"
        "print(float(model.evaluate(batch['x'], batch['y'], verbose=0)[0]))\n"
    )
    found = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, text=True, timeout=100)
    expected = 3 * np.square(y - np.asarray(model(x))).mean()
    assert float(found.split()[-1]) == pytest.approx(expected, rel=1e-4)
