"""Keras models of every shape through the adapter, compared with Keras's own step; randomness, metrics, files.

What all adapters promise alike is in test_adapters.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edt_runner.errors import StateMismatch, UsageError
from edt_runner.frameworks.tensorflow.keras_versions import keras_version_of
from edt_runner.schedule import StepKind
from support.sides import Keras, adapter_of, carry, step

keras: Any = pytest.importorskip("keras")
tf: Any = pytest.importorskip("tensorflow")
layers: Any = keras.layers
SCORES = "sparse_categorical_crossentropy"


def rows(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 8), dtype=np.float32)


def classes(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 3, count)


# ── models of every shape ───────────────────────────────────────────────────────────────────────────────────────
def two_inputs() -> Any:
    left, right, shared = keras.Input((8,), name="left"), keras.Input((8,), name="right"), layers.Dense(4)
    scores = layers.Dense(3, activation="softmax")(layers.Concatenate()([shared(left), shared(right)]))
    return keras.Model({"left": left, "right": right}, scores)


def two_outputs() -> Any:
    inputs = keras.Input((8,))
    hidden = layers.Dense(8, activation="relu", kernel_regularizer="l2")(inputs)
    outputs = {"kind": layers.Dense(3, activation="softmax", name="kind")(hidden), "size": layers.Dense(1)(hidden)}
    return keras.Model(inputs, outputs)


def words() -> Any:
    return keras.Sequential([keras.Input((5,), dtype="int32"), layers.Embedding(20, 4), layers.GRU(4), scores()])


def scores() -> Any:
    return layers.Dense(3, activation="softmax")


class Written(keras.Model):  # type: ignore[misc]
    """Not built before it is called; a layer of its own, a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.scores = layers.Dense(8), scores()

    def call(self, x: Any) -> Any:
        hidden = self.hidden(x)
        self.add_loss(0.01 * keras.ops.mean(keras.ops.square(hidden)))
        return self.scores(hidden)


def half_precision() -> Any:
    half = {"dtype": "mixed_float16"}
    return keras.Sequential([keras.Input((8,)), layers.Dense(8, **half), layers.Dense(3, activation="softmax")])


def normalized() -> Any:
    return keras.Sequential([keras.Input((8,)), layers.SpectralNormalization(layers.Dense(8)), scores()])


def weighted(count: int, seed: int) -> Any:
    return rows(count, seed), classes(count, seed), np.random.default_rng(seed).random(count, np.float32)


MODELS: dict[str, tuple[Callable[[], Any], Any, Any, Callable[[int, int], Any]]] = {
    "two inputs by name, through a shared layer": (
        two_inputs, SCORES, ["accuracy"], lambda n, s: ({"left": rows(n, s), "right": rows(n, s + 9)}, classes(n, s))
    ),
    "two outputs by name, each with its loss": (
        two_outputs, {"kind": SCORES, "size": "mse"}, {"kind": ["accuracy"], "size": ["mae"]},
        lambda n, s: (rows(n, s), {"kind": classes(n, s), "size": rows(n, s)[:, :1]}),
    ),
    "an embedding": (
        words, SCORES, [], lambda n, s: (np.random.default_rng(s).integers(0, 20, (n, 5)), classes(n, s))
    ),
    "a class of the user's": (Written, SCORES, ["accuracy"], lambda n, s: (rows(n, s), classes(n, s))),
    "half precision": (half_precision, SCORES, [], lambda n, s: (rows(n, s), classes(n, s))),
    "weights that forward writes": (normalized, SCORES, [], lambda n, s: (rows(n, s), classes(n, s))),
    "sample weights": (lambda: keras.Sequential([keras.Input((8,)), scores()]), SCORES, ["accuracy"], weighted),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_models_micro_batches_make_the_step_that_keras_makes_of_all_rows(name: str) -> None:
    make, loss, metrics, batch = MODELS[name]

    def fresh() -> Any:
        keras.utils.set_random_seed(0)
        return make()

    parts = [batch(2, 1), batch(4, 2)]
    joined = tf.nest.map_structure(lambda *vectors: np.concatenate(vectors), *parts)
    ours, plain = fresh(), fresh()
    adapter = adapter_of(ours, loss, keras.optimizers.SGD(0.1), metrics, parts[0])
    plain.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss, metrics=metrics)
    values = _step(adapter, *parts)
    expected = plain.train_on_batch(*joined, return_dict=True)
    assert values == pytest.approx({name: float(value) for name, value in expected.items()}, abs=1e-3)
    for weight, its in zip(ours.weights, plain.weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), its.numpy(), atol=1e-3 if name == "half precision" else 1e-5)
    assert adapter.take_warnings() == []


def test_batches_of_other_shapes_than_the_first_samples_train_too() -> None:
    """Each has the same bits, whatever an engine has seen before it."""

    def text() -> Any:
        keras.utils.set_random_seed(0)
        inputs = keras.Input((None,), dtype="int32")
        hidden = layers.GlobalAveragePooling1D()(layers.Embedding(20, 4)(inputs))
        return adapter_of(keras.Model(inputs, scores()(hidden)), SCORES, "sgd", [], (_words(2, 5), classes(2)))

    def local(adapter: Any, length: int) -> torch.Tensor:
        place = torch.empty(adapter.size(StepKind.TRAIN))
        adapter.micro_batch((_words(4, length), classes(4)), 4, 4, 0, place)
        return place

    one, other = text(), text()
    found = [local(one, length) for length in (5, 7, 9)]
    again = [local(other, length) for length in (9, 7, 5)]
    for ours, theirs in zip(found, reversed(again), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(found[0], found[1])


def _words(count: int, length: int) -> Any:
    return np.random.default_rng(length).integers(0, 20, (count, length))


def test_a_branch_over_a_tensor_is_translated_where_keras_does_so() -> None:
    """Keras 2 does, Keras 3 does not; the class has no training argument and is not built before it is called."""
    keras2 = Keras("tf_keras").keras

    class Branching(keras2.Model):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.scores = keras2.layers.Dense(3, activation="softmax")

        def call(self, x: Any) -> Any:
            if tf.reduce_mean(x) > 0:
                x = 2 * x
            return self.scores(x)

    for sign in (1, -1):
        batch = sign * np.abs(rows(4)), classes(4)
        ours, plain = Branching(), Branching()
        adapter = adapter_of(ours, SCORES, "sgd", [], (rows(2), classes(2)))
        plain(rows(2))
        plain.set_weights(ours.get_weights())
        plain.compile(optimizer="sgd", loss=SCORES)
        assert step(adapter, batch)["loss"] == pytest.approx(plain.train_on_batch(*batch), rel=1e-5)


def test_keras_on_another_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(UsageError, match="Keras computes with jax here, takes TensorFlow: set KERAS_BACKEND"):
        keras_version_of(keras.Sequential([keras.Input((8,)), scores()]))


def test_a_unit_that_is_a_whole_batch_counts_by_its_rows() -> None:
    """Keras sequences: the last batch has fewer rows than the others."""

    def fresh() -> Any:
        keras.utils.set_random_seed(0)
        return keras.Sequential([keras.Input((8,)), layers.BatchNormalization(), scores()])

    parts = [(rows(6, 1), classes(6, 1)), (rows(2, 2), classes(2, 2))]
    ours = fresh()
    adapter = adapter_of(ours, SCORES, keras.optimizers.SGD(0.1), [], parts[0], by_rows=True)
    whole = adapter_of(fresh(), SCORES, keras.optimizers.SGD(0.1), [], parts[0])
    vectors = [torch.empty(adapter.size(StepKind.TRAIN)) for _ in parts]
    for part, local in zip(parts, vectors, strict=True):
        adapter.micro_batch(part, 1, 2, 0, local)
    reduced = torch.stack(vectors).sum(dim=0)
    adapter.apply(reduced)
    expected = step(whole, *parts)
    sums = adapter.sums(StepKind.TRAIN, reduced)
    assert sums[0] == 8
    assert adapter.values(sums) == pytest.approx(expected, rel=1e-5)
    for weight, its in zip(ours.weights, whole.model.weights, strict=True):
        np.testing.assert_allclose(weight.numpy(), its.numpy(), atol=1e-6)


def test_an_op_without_a_deterministic_kernel_ends_the_guarantee_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU; here the error is raised for it, once."""
    tf.config.experimental.enable_op_determinism()
    tf.random.set_seed(0)
    adapter = adapter_of(keras.Sequential([keras.Input((8,)), scores()]), SCORES, "sgd", [], (rows(2), classes(2)))
    before, real = adapter.digest(), adapter._run

    def lacking(*given: Any) -> Any:
        monkeypatch.setattr(adapter, "_run", real)
        raise tf.errors.UnimplementedError(None, None, "A deterministic GPU implementation of Crop is not available.")

    monkeypatch.setattr(adapter, "_run", lacking)
    adapter.warm_up((rows(2), classes(2)))
    ((what, why),) = adapter.take_warnings()
    assert "Crop" in what
    assert "no deterministic implementation" in why
    assert adapter.digest() == before


def test_numbers_with_a_point_are_taken_as_keras_takes_them() -> None:
    keras.utils.set_random_seed(0)
    adapter = adapter_of(keras.Sequential([keras.Input((8,)), scores()]), SCORES, "sgd", [], (rows(2), classes(2)))
    vectors = [torch.empty(adapter.size(StepKind.TRAIN)) for _ in range(2)]
    adapter.micro_batch((rows(4), classes(4)), 4, 4, 0, vectors[0])
    adapter.micro_batch((rows(4).astype("float64"), classes(4)), 4, 4, 0, vectors[1])
    assert torch.equal(*vectors)


def test_a_batch_that_is_no_tuple_is_refused() -> None:
    adapter = Keras("keras").adapter()
    with pytest.raises(UsageError, match=r"a batch is a list, takes \(x, y\)"):
        adapter.micro_batch([rows(2), rows(2)], 2, 2, 0, torch.empty(adapter.size(StepKind.TRAIN)))


# ── randomness ──────────────────────────────────────────────────────────────────────────────────────────────────
class Noise(layers.Layer):  # type: ignore[misc]
    """``draw``: from whom, given a shape."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        super().__init__()
        self.draw = draw

    def call(self, x: Any) -> Any:
        return x + self.draw(tf.shape(x))


class Inner:
    """No layer, so that Keras does not see what it holds."""

    def __init__(self) -> None:
        self.generator = keras.random.SeedGenerator(5)


def _noise_of_an_object() -> Any:
    inner = Inner()
    return lambda shape: keras.random.normal(shape, seed=inner.generator)


def _noise_of_tensorflow() -> Any:
    generator = tf.random.Generator.from_seed(1)
    return generator.normal


SEEDED: dict[str, Callable[[], Any]] = {
    "keras's global generator": lambda: keras.random.normal,
    "a generator in an object": _noise_of_an_object,
    "a tf.random.Generator": _noise_of_tensorflow,
}


@pytest.mark.parametrize("name", SEEDED)
def test_whatever_generator_draws_depends_on_the_seed_of_the_micro_batch_alone(name: str) -> None:
    def fresh() -> Any:
        keras.utils.set_random_seed(0)
        net = keras.Sequential([keras.Input((8,)), Noise(SEEDED[name]()), layers.Dropout(0.5), scores()])
        return adapter_of(net, SCORES, "sgd", [], (rows(2), classes(2)))

    def local(adapter: Any, seed: int) -> torch.Tensor:
        place = torch.empty(adapter.size(StepKind.TRAIN))
        adapter.micro_batch((rows(4), classes(4)), 4, 4, seed, place)
        return place

    one, other = fresh(), fresh()
    first, second = local(one, 1), local(one, 2)
    assert not torch.equal(first, second)
    assert torch.equal(local(other, 2), second)  # without what came before
    assert torch.equal(local(one, 1), first)
    assert one.take_warnings() == []


def test_a_random_op_that_no_seed_reaches_ends_the_guarantee_by_name() -> None:
    net = keras.Sequential([keras.Input((8,)), Noise(tf.random.normal), scores()])
    adapter = adapter_of(net, SCORES, "sgd", [], (rows(2), classes(2)))
    step(adapter, (rows(4), classes(4)))
    ((what, why),) = adapter.take_warnings()
    assert "RandomStandardNormal" in what
    assert "keras.random" in why


def test_a_variable_that_is_none_of_the_models_ends_the_guarantee_by_name() -> None:
    calls = tf.Variable(0.0, name="calls")
    net = keras.Sequential([keras.Input((8,)), Noise(lambda shape: calls.assign_add(1.0)), scores()])
    adapter = adapter_of(net, SCORES, "sgd", [], (rows(2), classes(2)))
    step(adapter, (rows(4), classes(4)))
    ((what, why),) = adapter.take_warnings()
    assert what == "calls"
    assert "none of its weights" in why


# ── metrics ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_metric_that_is_no_mean_is_that_of_all_rows(side: Keras) -> None:
    """Mean AUC of parts is another number than AUC of all."""
    metrics = side.keras.metrics

    def fresh() -> Any:
        side.keras.utils.set_random_seed(0)
        return side.keras.Sequential([side.keras.Input((8,)), side.keras.layers.Dense(1, activation="sigmoid")])

    def chosen() -> list[Any]:
        return [metrics.AUC(name="auc"), metrics.Precision(name="precision"), "mae"]

    parts = [(rows(n, n), (rows(n, n)[:, 0] > 0.3).astype("int64")) for n in (9, 14, 30)]
    adapter = adapter_of(fresh(), "binary_crossentropy", "sgd", chosen(), parts[0])
    plain = fresh()
    plain.compile(optimizer="sgd", loss="binary_crossentropy", metrics=chosen())
    joined = (np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]))
    expected = plain.evaluate(*joined, batch_size=64, return_dict=True, verbose=0)
    sums = np.zeros(adapter.width)
    for batch in parts:
        numbers = torch.empty(adapter.size(StepKind.VALIDATE))
        adapter.evaluate(batch, len(batch[1]), 0, numbers)
        sums += adapter.sums(StepKind.VALIDATE, numbers)
    assert adapter.values(sums) == pytest.approx(expected, rel=1e-5)
    assert adapter.values(sums) == adapter.values(sums)  # asking changes nothing


@pytest.fixture(params=["keras", "tf_keras"])
def side(request: pytest.FixtureRequest) -> Keras:
    pytest.importorskip(request.param)
    return Keras(request.param)


def test_a_metric_for_each_class_is_told_for_each() -> None:
    net = keras.Sequential([keras.Input((8,)), scores()])
    adapter = adapter_of(net, "categorical_crossentropy", "sgd", [keras.metrics.F1Score()], (rows(2), np.eye(3)[:2]))
    values = step(adapter, (rows(6), np.eye(3)[classes(6)]))
    assert set(values) == {"loss", "f1_score_0", "f1_score_1", "f1_score_2"}


# ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_exported_state_stays_what_it_was_while_the_training_goes_on(side: Keras) -> None:
    """A joining engine reads it while the next step is computed, the checkpoint's copy is made in the background."""
    adapter = side.adapter("normed")
    state = adapter.export_state()
    before = {name: tensor.clone() for name, tensor in state.tensors.items()}
    step(adapter, side.batch(1), side.batch(2))
    for name, tensor in state.tensors.items():
        assert torch.equal(tensor, before[name])
    assert any(not torch.equal(t, before[name]) for name, t in adapter.export_state().tensors.items())


def test_the_learning_rate_that_a_callback_sets_is_part_of_the_state(side: Keras) -> None:
    adapter, other = side.adapter(), side.adapter()
    adapter.model.optimizer.learning_rate = 0.5
    carry(adapter, other)
    assert float(other.model.optimizer.learning_rate) == 0.5


def test_a_state_of_another_optimizer_or_generation_is_refused() -> None:
    adapter = Keras("keras").adapter()
    state = adapter.export_state()
    for key, value in (("optimizer", "Lion"), ("keras", "keras 2")):
        with pytest.raises(StateMismatch, match=f"{key}: {value} in the training"):
            adapter.begin_import({**state.meta, key: value}, {})


unread_copies = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")
"""TensorFlow's variables do not know an argument of NumPy 2's yet, and Keras saves through it."""


# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────
@unread_copies
def test_the_final_model_is_saved_for_keras_and_for_serving(side: Keras, tmp_path: Path) -> None:
    adapter = side.adapter("normed")
    step(adapter, side.batch(1))
    adapter.save_for_user(tmp_path, "model_epoch_1")
    adapter.save_for_user(tmp_path, "model_epoch_final")
    adapter.save_for_user(tmp_path, "model_epoch_final")  # a first engine that died may have been about to
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"model_epoch_1.keras", "model_epoch_final.keras", "model_epoch_final"}
    inputs = side.batch(3)[0]
    expected = np.asarray(adapter.model(inputs))
    loaded = side.keras.models.load_model(tmp_path / "model_epoch_final.keras")
    np.testing.assert_allclose(np.asarray(loaded(inputs)), expected, rtol=1e-6)
    served = tf.saved_model.load(str(tmp_path / "model_epoch_final"))
    np.testing.assert_allclose(served.serve(inputs), expected, rtol=1e-6)


@unread_copies
def test_a_model_that_keras_cannot_describe_leaves_its_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Secret(keras.Model):  # type: ignore[misc]
        def __init__(self, made_with: object) -> None:
            super().__init__()
            self.made_with, self.scores = made_with, scores()

        def call(self, x: Any) -> Any:
            return self.scores(x)

    adapter = adapter_of(Secret(object()), SCORES, "sgd", [], (rows(2), classes(2)))
    adapter.save_for_user(tmp_path, "model_epoch_1")
    assert [path.name for path in tmp_path.iterdir()] == ["model_epoch_1.weights.h5"]
    assert "model_epoch_1.keras cannot be written, model_epoch_1.weights.h5 is instead" in capsys.readouterr().err


def _step(adapter: Any, *parts: Any) -> dict[str, float]:
    """As ``step``, for targets of any structure."""
    counts = [len(tf.nest.flatten(part)[0]) for part in parts]
    vectors = [torch.empty(adapter.size(StepKind.TRAIN)) for _ in parts]
    for part, count, local in zip(parts, counts, vectors, strict=True):
        adapter.micro_batch(part, count, sum(counts), 0, local)
    reduced = torch.stack(vectors).sum(dim=0)
    adapter.apply(reduced)
    return dict(adapter.values(adapter.sums(StepKind.TRAIN, reduced)))
