"""``runai.elastic.keras`` on one device: rows 1, 4 to 15 and 26 of what a replacement of Run:AI's library must pass, as
far as they are Keras's. Numbers are compared with a network in NumPy."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edt_runner.errors import UsageError
from runai import elastic
from runai.utils import gpus as devices
from support.numpy_net import NumpyNet
from support.nursery import RUNNERS

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")  # in Keras

rk: Any = importlib.import_module("runai.elastic.keras")
ga: Any = importlib.import_module("runai.ga.keras.optimizers")
G = np.random.default_rng(0)
X, Y = G.standard_normal((50, 3)).astype(np.float32), G.standard_normal((50, 1)).astype(np.float32)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = dict(vars(elastic))
    yield
    for name in elastic.ATTRIBUTES:
        vars(elastic).pop(name, None)
    vars(elastic).update(before)


def net(*between: Any) -> Any:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    return keras.Sequential([keras.Input((3,)), layers.Dense(4, activation="tanh"), *between, layers.Dense(1)])


def wrapped(global_batch: int, most: int, model: Any = None, **compiled: Any) -> Any:
    rk.init(global_batch, most, gpus=1)
    model = rk.models.Model(model or net())
    model.compile(**{"optimizer": keras.optimizers.SGD(0.1, momentum=0.5), "loss": "mse", **compiled})
    return model


def by_hand(batch: int, epochs: int = 2) -> list[Any]:
    """Weights after training on whole batches, in NumPy."""
    return NumpyNet(net().get_weights(), rate=0.1, momentum=0.5).fit(X, Y, batch, epochs).weights


def assert_close(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


class Rows(keras.layers.Layer):  # type: ignore[name-defined,misc]
    """Notes the samples of each pass, by their first input; for models that run eagerly."""

    seen: list[list[float]]

    def call(self, x: Any) -> Any:
        if tf.executing_eagerly():
            self.seen.append([round(float(value), 4) for value in x[:, 0]])
        return x


# ── init ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_c1_01_importing_either_brings_no_framework_and_says_nothing() -> None:
    code = (
        "import runai.elastic.keras, runai.ga.keras, sys\n"
        "print({'torch', 'tensorflow', 'keras', 'horovod'} & set(sys.modules), 'hvd' in vars(runai.elastic))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(RUNNERS)},
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("set() False\n", "")


def test_c1_02_to_09_init_says_what_each_gpu_does() -> None:
    found = {}
    for given in [(256, 64, 1), (256, 64, 4), (128, 16, 1), (256, 300, 1), (100, 30, 1), (256, 64, 3), (127, 64, 1)]:
        rk.init(given[0], given[1], gpus=given[2])
        found[given] = (elastic.steps, elastic.batch_size, elastic.gpus, elastic.global_batch_size, elastic.master)
        assert not hasattr(elastic, "hvd")
    assert found == {
        (256, 64, 1): (4, 64, 1, 256, True),
        (256, 64, 4): (1, 64, 4, 256, True),
        (128, 16, 1): (8, 16, 1, 128, True),
        (256, 300, 1): (1, 256, 1, 256, True),
        (100, 30, 1): (4, 25, 1, 100, True),
        (256, 64, 3): (2, 43, 3, 256, True),
        (127, 64, 1): (2, 64, 1, 127, True),
    }


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ((1, 1, 2), "global_batch_size"),
        ((0, 64), "global_batch_size"),
        ((256, 64.0), "max_gpu_batch_size"),
        ((8, 8, 0), "gpus"),
    ],
)
def test_c1_11_to_13_what_cannot_be_is_refused_by_name_and_changes_nothing(given: Any, name: str) -> None:
    rk.init(256, 64, gpus=2)
    with pytest.raises(UsageError, match=name):
        rk.init(*given)
    assert (elastic.steps, elastic.gpus) == (2, 2)


def test_c1_14_without_a_gpu_this_cpu_is_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "installed", list)
    rk.init(256, 64)
    assert (elastic.gpus, elastic.steps) == (1, 4)


def test_c1_15_gpus_are_those_that_cuda_visiblegpus_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "installed", lambda: ["GPU-a", "GPU-b", "GPU-c", "GPU-d"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    rk.init(256, 64)
    assert (elastic.gpus, elastic.steps) == (4, 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    rk.init(256, 64)
    assert (elastic.gpus, elastic.steps) == (1, 4)


# ── compile and fit ───────────────────────────────────────────────────────────────────────────────────────────
def test_c1_26_the_model_stays_the_same_object_and_takes_optimizers_in_all_forms() -> None:
    rk.init(20, 7, gpus=1)
    model = net()
    assert rk.models.Model(model) is model
    for optimizer in ("sgd", keras.optimizers.SGD(0.1), {"class_name": "sgd", "config": {"learning_rate": 0.1}}):
        model.compile(optimizer=optimizer, loss="mse")
        assert type(model.optimizer) is keras.optimizers.SGD
    model.compile(keras.optimizers.Adam(0.1), loss="mse")
    assert type(model.optimizer) is keras.optimizers.Adam
    for nonsense in ("nonsense", 3, None):
        with pytest.raises(ValueError, match=r"'optimizer' must be a valid keras\.optimizers\.Optimizer"):
            model.compile(optimizer=nonsense, loss="mse")


@pytest.mark.parametrize("most", [20, 7, 1])
def test_c1_28_whatever_a_gpu_holds_the_weights_are_those_of_whole_batches(most: int) -> None:
    """50 samples in batches of 20: each epoch ends with one of 10."""
    model = wrapped(20, most, metrics=["mae"])
    history = model.fit(X, Y, batch_size=elastic.batch_size, epochs=2, shuffle=False, verbose=0)
    by_numpy = NumpyNet(net().get_weights(), rate=0.1, momentum=0.5).fit(X, Y, 20, 2)
    assert_close(model.get_weights(), by_numpy.weights)
    np.testing.assert_allclose(history.history["loss"], by_numpy.losses, rtol=1e-5)
    assert int(model.optimizer.iterations) == 6
    assert sorted(history.history) == ["loss", "mae"]


@pytest.mark.parametrize(("global_batch", "most", "sizes"), [(20, 7, [7, 7, 6, 7, 7, 6, 5, 5]), (50, 30, [25, 25])])
def test_c1_08_09_no_pass_is_above_the_maximum_and_each_sample_is_in_one(
    global_batch: int, most: int, sizes: list[int]
) -> None:
    model = wrapped(global_batch, most, net(Rows()), run_eagerly=True)
    rows = model.layers[1]
    rows.seen = []
    model.fit(X, Y, shuffle=False, verbose=0)
    assert [len(each) for each in rows.seen] == sizes
    rows.seen.clear()
    model.fit(X, Y, shuffle=False, verbose=0, validation_data=(X, Y))
    assert max(map(len, rows.seen)) <= most  # of validation, too
    assert sum(map(len, rows.seen)) == 2 * len(X)


def test_moving_averages_are_those_of_all_parts_by_their_samples() -> None:
    model = wrapped(50, 20, net(keras.layers.BatchNormalization(momentum=0.75)), optimizer=keras.optimizers.SGD(0.0))
    hidden = np.tanh(X @ model.get_weights()[0] + model.get_weights()[1])
    model.fit(X, Y, shuffle=False, verbose=0)
    parts = [hidden[:17], hidden[17:34], hidden[34:]]
    expected = 0.25 * sum(len(part) / 50 * part.mean(0) for part in parts)
    np.testing.assert_allclose(model.layers[1].moving_mean, expected, atol=1e-6)


def test_callbacks_and_schedules_see_updates_and_a_rate_that_is_set_counts() -> None:
    class Sees(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        batches = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.batches += 1

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = 0.0

    model, sees = wrapped(20, 7), Sees()
    before = model.get_weights()
    model.fit(X, Y, verbose=0, callbacks=[sees])
    assert sees.batches == 3
    assert_close(model.get_weights(), before)


class Items(keras.utils.PyDataset):  # type: ignore[name-defined,misc]
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        return X[10 * index : 10 * index + 10], Y[10 * index : 10 * index + 10]


def endless() -> Iterator[Any]:
    while True:
        yield from (Items()[index] for index in range(5))


@pytest.mark.filterwarnings("ignore:Your `PyDataset` class should call:UserWarning")
def test_c1_26_data_that_come_in_batches_are_put_together_to_the_global_batch() -> None:
    expected, model = by_hand(20), wrapped(20, 7)
    first = model.get_weights()
    sources = {
        "a tf.data.Dataset": (tf.data.Dataset.from_tensor_slices((X, Y)).batch(7), {}),
        "a PyDataset": (Items(), {}),
        "a generator": (endless(), {"steps_per_epoch": 5}),
    }
    for name, (source, more) in sources.items():
        model.set_weights(first)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.5), loss="mse")
        model.fit(source, epochs=2, shuffle=False, verbose=0, **more)
        assert int(model.optimizer.iterations) == 6, name
        assert_close(model.get_weights(), expected)
    model.set_weights(first)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), loss="mse")
    with pytest.warns(DeprecationWarning, match="fit_generator"):
        model.fit_generator(endless(), 5, epochs=2, verbose=0, workers=1)
    assert_close(model.get_weights(), expected)
    with pytest.raises(UsageError, match="x: got set, takes arrays"):
        model.fit({1})


def test_an_elastic_model_is_saved_evaluated_and_asked_as_any_other(tmp_path: Path) -> None:
    model = wrapped(20, 7)
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.evaluate(X, Y, verbose=0) == model.evaluate(X, Y, verbose=0)
    assert np.array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    assert type(loaded.optimizer) is keras.optimizers.SGD and int(loaded.optimizer.iterations) == 3


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("mnist_keras", "--epochs 3"),
        ("mlp_ga_keras", "--epochs 1"),
        pytest.param("cifar10_keras", "--samples 512", marks=pytest.mark.extended),
    ],
)
def test_c1_27_the_examples_learn(
    script: str, arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keras.utils.set_random_seed(1)  # the weights that a script begins with are drawn: about one in fifty learns less
    monkeypatch.setattr(sys, "argv", [script, *arguments.split()])
    runpy.run_path(str(RUNNERS.parent / "examples/runai" / f"{script}.py"), run_name="__main__")
    assert float(capsys.readouterr().out.split()[-1]) > 0.8


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────
def test_a_model_comes_after_init_once_and_is_one_of_keras_3() -> None:
    with pytest.raises(UsageError, match=r"called before runai\.elastic\.keras\.init"):
        rk.models.Model(net())
    model = wrapped(20, 7)
    with pytest.raises(UsageError, match="elastic already"):
        rk.models.Model(model)
    with pytest.raises(UsageError, match=r"model: got int, takes a keras\.Model"):
        rk.models.Model(3)

    class Own(keras.Model):  # type: ignore[name-defined,misc]
        def train_step(self, data: Any) -> Any:
            return {}

    with pytest.raises(UsageError, match="Own has a train_step of its own"):
        rk.models.Model(Own())


def test_another_batch_size_than_inits_and_a_second_accumulation_are_refused() -> None:
    model = wrapped(20, 7)
    with pytest.raises(UsageError, match=r"batch_size: got 32, takes runai.elastic.batch_size, which is 7"):
        model.fit(X, Y, batch_size=32)
    for optimizer in (ga.SGD(3), keras.optimizers.SGD(gradient_accumulation_steps=3)):
        with pytest.raises(UsageError, match="takes 3 batches to an update by itself"):
            model.compile(optimizer=optimizer, loss="mse")
        compiled = net()
        compiled.compile(optimizer=optimizer, loss="mse")
        with pytest.raises(UsageError, match="takes 3 batches to an update by itself"):
            rk.models.Model(compiled)


@pytest.mark.parametrize("before", [True, False])
def test_a_loss_that_is_no_mean_over_samples_is_warned_of(before: bool) -> None:
    rk.init(20, 7, gpus=1)
    model, loss = net(), [keras.losses.MeanSquaredError(reduction="sum")]
    if before:
        model.compile("sgd", loss)
    with pytest.warns(RuntimeWarning, match=r"loss: got MeanSquaredError\(reduction='sum'\)"):
        rk.models.Model(model)
        if not before:
            model.compile("sgd", loss)


def test_a_model_that_was_compiled_before_is_elastic_too() -> None:
    rk.init(20, 7, gpus=1)
    model = net()
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), loss="mse")
    rk.models.Model(model).fit(X, Y, epochs=2, shuffle=False, verbose=0)
    assert_close(model.get_weights(), by_hand(20))


ENGINES_REFUSE: dict[str, tuple[dict[str, Any], str]] = {
    "class_weight": ({"class_weight": {0: 2.0}}, "class_weight: got .* give sample_weight"),
    "initial_epoch": ({"initial_epoch": 2}, "initial_epoch: got 2"),
    "steps_per_epoch": ({"steps_per_epoch": 2}, "steps_per_epoch: got 2"),
    "a stream": (
        {"x": tf.data.Dataset.from_tensor_slices((X, Y)), "y": None},
        "x: got .*Dataset.* takes arrays or a keras",
    ),
    "a generator": ({"x": endless(), "y": None}, "x: got generator"),
    "rows": ({"y": Y[:49]}, "x: got arrays of 49 and 50 rows"),
    "items": ({"x": Items(), "y": None}, "x: got a PyDataset of 10 samples an item, takes items of .* which is 5"),
    "validation data": ({"validation_data": endless()}, "validation_data: got generator"),
    "epochs": ({"epochs": 0}, "epochs: got 0"),
    "validation_freq": ({"validation_freq": [1]}, "validation_freq: got"),
    "validation_split": ({"validation_split": 1.5}, "validation_split: got 1.5"),
    "a callback of batches": (
        {"callbacks": [keras.callbacks.ModelCheckpoint("x.keras")]},
        r"callbacks\[0\]: keras.callbacks.ModelCheckpoint cannot run in several processes",
    ),
}


def test_on_severalgpus_what_engines_cannot_do_is_refused_by_name() -> None:
    rk.init(20, 7, gpus=2)
    model = rk.models.Model(net())
    with pytest.raises(UsageError, match="called before compile"):
        model.fit(X, Y)
    model.compile("sgd", loss="mse", run_eagerly=True)
    with pytest.raises(UsageError, match="run_eagerly=True"):
        model.fit(X, Y)
    model.compile("sgd", loss="mse")
    for arguments, message in ENGINES_REFUSE.values():
        with pytest.raises(UsageError, match=message):
            model.fit(**{"x": X, "y": Y, **arguments})
