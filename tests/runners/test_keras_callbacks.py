"""Which of Keras's callbacks run in an elastic training, and what takes the place of the others."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pytest

from edt_runner.callbacks.hooks import UserCallbacks
from edt_runner.errors import UsageError
from edt_runner.schedule import Schedule
from fabric_model.user_callbacks import attached

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
keras = pytest.importorskip("keras")
tf_keras = pytest.importorskip("tf_keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning")
"""Keras 3's own, as it reads the rate."""


def compiled(library: Any) -> Any:
    model = library.Sequential([library.layers.Dense(2)])
    model.build((None, 3))
    model.compile(library.optimizers.SGD(0.1), "mse")
    return model


def hooks_of(model: Any, *callbacks: Any) -> UserCallbacks:
    """As one engine has them."""
    hooks = UserCallbacks(
        attached(list(callbacks), keras=True),
        model,
        model.optimizer,
        [model, model.optimizer],
        epochs=20,
        steps=3,
        seed=7,
        seed_framework=lambda seed: None,
        ran=lambda: None,
    )
    hooks.begin()
    return hooks


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras 3", "keras 2"])
def test_a_plateau_is_counted_on_by_a_joining_engine_as_if_it_had_been_there(library: Any) -> None:
    """A joining engine after each epoch: the rate falls as often and when it falls in Keras's own loop."""
    losses = [1.0, 0.9, 0.89995, 0.9, 0.5, 0.49999, 0.50001, 0.5, 0.5, 0.2]

    def made() -> Any:
        return library.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=2, min_delta=1e-3, cooldown=1)

    model, plain = compiled(library), made()
    plain.set_model(model)
    plain.on_train_begin()
    expected = []
    for epoch, loss in enumerate(losses):
        plain.on_epoch_end(epoch, {"loss": loss})
        expected.append(float(model.optimizer.learning_rate.numpy()))

    rates, exported = [], None
    for epoch, loss in enumerate(losses):
        joining = compiled(library)
        hooks = hooks_of(joining, made())
        if exported is not None:
            hooks.restore(json.loads(json.dumps(exported[0])), exported[1])
            joining.optimizer.learning_rate = rates[-1]
        hooks.end_epoch(epoch, {"loss": loss}, last=False, saves=False)
        rates.append(float(joining.optimizer.learning_rate.numpy()))
        exported = hooks.export()
    assert rates == expected
    assert len(set(expected)) >= 3


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras 3", "keras 2"])
def test_the_best_weights_are_known_to_a_joining_engine(library: Any) -> None:
    def made() -> Any:
        return library.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)

    model, joining = compiled(library), compiled(library)
    hooks, others = hooks_of(model, made()), hooks_of(joining, made())
    best = model.get_weights()
    hooks.end_epoch(0, {"loss": 1.0, "val_loss": 1.0}, last=False, saves=False)
    model.set_weights([weight + 1 for weight in best])
    hooks.end_epoch(1, {"loss": 1.0, "val_loss": 2.0}, last=False, saves=False)
    assert not hooks.stopped
    exported, tensors = hooks.export()
    others.restore(json.loads(json.dumps(exported)), tensors)
    for each in (hooks, others):
        each.end_epoch(2, {"loss": 1.0, "val_loss": 2.0}, last=False, saves=False)
        assert each.stopped
    for each in (model, joining):
        assert all(np.array_equal(now, then) for now, then in zip(each.get_weights(), best, strict=True))


def test_hooks_get_the_epoch_from_0_the_number_of_epochs_and_what_others_added_to_the_logs() -> None:
    calls: list[Any] = []

    class Own(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            calls.append((epoch, self.params["epochs"], self.params["steps"], sorted(logs), self.model is model))

    model = compiled(keras)
    hooks = hooks_of(model, keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate), Own())
    hooks.end_epoch(0, {"loss": 1.0, "val_loss": 2.0}, last=False, saves=False)
    assert calls == [(0, 20, 3, ["learning_rate", "loss", "val_loss"], True)]


@pytest.mark.parametrize("library", [keras, tf_keras], ids=["keras 3", "keras 2"])
def test_hooks_of_steps_are_called_as_in_fit(library: Any) -> None:
    """By their names and by the older ones, and those that a LambdaCallback is given."""
    calls: list[Any] = []

    class Own(library.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            calls.append(("begin", batch))

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            calls.append(("end", batch, sorted(logs)))

        def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
            calls.append(("tested", batch))

        def on_predict_end(self, logs: Any = None) -> None:
            calls.append("predicted")

    def told() -> list[Any]:
        found, calls[:] = list(calls), []
        return found

    seen = library.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: calls.append(("seen", batch)))
    x, y = np.zeros((4, 3), np.float32), np.zeros((4, 2), np.float32)
    compiled(library).fit(x, y, batch_size=2, verbose=0, validation_data=(x, y), callbacks=[Own(), seen])
    in_fit = [call for call in told() if call != "predicted"]
    hooks = hooks_of(compiled(library), Own(), seen)
    schedule = Schedule(train_samples=4, test_samples=4, micro_batches=1, batch_size=2, epochs=20)
    for offset in range(schedule.offset_of(1)):
        hooks.end_step(schedule.at(offset), {"loss": 1.0})
    assert told() == in_fit
    assert hooks.has_step_hooks
    assert not hooks_of(compiled(library), library.callbacks.EarlyStopping("loss")).has_step_hooks


def test_a_lambda_callback_of_epochs_runs() -> None:
    epochs: list[int] = []
    model = compiled(keras)
    hooks = hooks_of(model, keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epochs.append(epoch)))
    hooks.end_epoch(0, {"loss": 1.0}, last=False, saves=False)
    assert epochs == [0, 1]


@pytest.mark.parametrize(
    ("callback", "words"),
    [
        (lambda: keras.callbacks.ModelCheckpoint("x.keras"), ["ModelCheckpoint", "checkpoint_freq"]),
        (lambda: tf_keras.callbacks.ModelCheckpoint("x"), ["ModelCheckpoint", "checkpoint_freq"]),
        (lambda: keras.callbacks.BackupAndRestore("x"), ["BackupAndRestore", "recovery"]),
        (lambda: keras.callbacks.CSVLogger("x.csv"), ["CSVLogger", "driver_logger_callback"]),
        (lambda: keras.callbacks.TensorBoard("x"), ["TensorBoard", "driver_logger_callback"]),
        (keras.callbacks.TerminateOnNaN, ["TerminateOnNaN", "on_nonfinite='stop'"]),
    ],
    ids=[
        "ModelCheckpoint",
        "ModelCheckpoint of Keras 2",
        "BackupAndRestore",
        "CSVLogger",
        "TensorBoard",
        "TerminateOnNaN",
    ],
)
def test_callbacks_that_cannot_run_in_every_engine_are_refused_with_what_to_do_instead(
    callback: Any, words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        attached([callback()], keras=True)
    assert all(word in str(caught.value) for word in ["user_callback[0]: ", *words]), str(caught.value)


def test_keras_callbacks_are_for_keras_models() -> None:
    with pytest.raises(UsageError, match=r"user_callback: got a Keras callback.*torch\.nn\.Module"):
        attached(keras.callbacks.Callback(), keras=False)


def test_an_evaluation_in_a_hook_leaves_nothing_behind_in_the_metrics() -> None:
    """Else an engine that was there would show other values than one that came later."""
    from edt_runner.frameworks.tensorflow.adapter import TensorFlowAdapter
    from edt_runner.frameworks.tensorflow.keras_versions import keras_version_of

    model = compiled(keras)
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae"], jit_compile=False)
    batch = (np.ones((2, 3), np.float32), np.zeros((2, 2), np.float32))
    adapter = TensorFlowAdapter(keras_version_of(model), model, batch)
    adapter.warm_up(batch)
    sums = [2.0, 4.0, *[3.0] * (adapter.width - 2)]
    before = adapter.values(sums)
    model.evaluate(*batch, verbose=0)
    adapter.recommit()
    assert adapter.values(sums) == before
