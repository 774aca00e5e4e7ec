"""``fit`` on several devices, and in a job, where OpenEDT's engines compute.

An update has ``steps x gpus`` micro-batches, which all engines share. Loss, metrics and optimizer are those that the
model was compiled with. ``verbose`` has no effect, because progress goes to standard error. In the driver, ``fit``
returns Keras's ``History``, and the model has the trained weights. In an engine, ``fit`` does not return.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from edt_runner import context
from edt_runner.errors import UsageError
from edt_runner.frameworks.tensorflow import nested
from edt_runner.frameworks.tensorflow.keras_versions import keras_version_of
from edt_runner.frameworks.tensorflow.trainable import KerasTrainable
from edt_runner.launch.train import train
from edt_runner.loggers import ELog
from edt_runner.training import TrainRequest
from fabric_model import user_callbacks
from fabric_model.keras import check_model
from runai import elastic
from runai.utils import gpus as devices

_FIXED: Mapping[str, tuple[Any, str]] = {
    "class_weight": (None, "give sample_weight, each sample's class's weight"),
    "initial_epoch": (0, "give the number of epochs that are left as epochs"),
    "steps_per_epoch": (None, "an epoch is all of the data; give less of them"),
    "validation_steps": (None, "a validation is all of validation_data; give less of them"),
    "validation_batch_size": (None, "test batches are of runai.elastic.batch_size samples"),
}
"""Arguments of ``fit`` that must have Keras's default value, and what to do instead."""
_trained: list[bool] = []
_DRAWN = "takes arrays or a keras.utils.PyDataset: each engine must be able to fetch any sample by itself"


def fit(model: Any, plan: Any, given: Mapping[str, Any]) -> Any:
    """Train on engines, as the module's docstring describes.

    Args:
        model: the compiled model.
        plan: a ``models.Plan``.
        given: all arguments of ``fit``, by name.

    Returns:
        Keras's ``History``.

    Raises:
        UsageError: engines do not support an argument, which the message names; or ``fit`` was called before, or the
            model is not compiled.
    """
    if _trained:
        raise UsageError(
            "fit(): called a second time on several devices, or in a job; a script trains once there, since its "
            "engines run it from the top to fit(). Put the other training into a script of its own"
        )
    if not model.compiled:
        raise UsageError("fit(): called before compile(optimizer=…, loss=…)")
    if model.run_eagerly:
        raise UsageError("compile(run_eagerly=True): engines compute graphs; takes False, or one device to look closer")
    for name, (default, instead) in _FIXED.items():
        if given.get(name, default) not in (default, None):
            raise UsageError(f"{name}: got {given[name]!r}, takes nothing on several devices: {instead}")
    epochs, frequency = given["epochs"], given["validation_freq"]
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
        raise UsageError(f"epochs: got {epochs!r}, takes a whole number, at least 1")
    if not isinstance(frequency, int) or frequency < 1:
        raise UsageError(f"validation_freq: got {frequency!r}, takes a whole number on several devices: every so many")
    keras3 = keras_version_of(model)
    check_model(keras3, model)
    data, validation = _data(given, plan.batch_size)
    callbacks = _callbacks(given["callbacks"])
    history = _History(model, plan.steps * plan.gpus)
    trainable = KerasTrainable(keras3, model)
    if context.current() is None:
        _offer(plan.gpus)
    _trained.append(True)
    train(
        TrainRequest(
            trainable=trainable,
            datasets_function=lambda: (data, validation),
            worker_logger=None,
            driver_logger=history,
            collate=None,
            epochs=epochs,
            batch_size=plan.batch_size,
            micro_batches=plan.steps * plan.gpus,
            loader_processes=0,
            validation_freq=frequency,
            checkpoint_freq=0,
            seed=None,
            exact=True,
            callbacks=callbacks,
            step_samples=plan.global_batch if isinstance(data, tuple) else None,
            shuffle=bool(given["shuffle"]),
            observe_step=_follow,
        )
    )
    trainable.finish()
    return history.as_keras(epochs)


def _data(given: Mapping[str, Any], batch_size: int) -> tuple[Any, Any]:
    """Training and validation data, in a form that engines can load from."""
    x, y, weights = given["x"], given["y"], given["sample_weight"]
    validation, part = given["validation_data"], given["validation_split"]
    if isinstance(x, keras.utils.PyDataset):
        if y is not None or weights is not None or part:
            raise UsageError("x: got a PyDataset beside y, sample_weight or validation_split, takes it alone")
        _check_items(x, batch_size)
        data: Any = x
    else:
        data = _arrays("x", x, y, weights)
    if part and validation is None:
        if not 0 < part < 1:
            raise UsageError(f"validation_split: got {part!r}, takes a number between 0 and 1")
        kept = int(np.floor(_rows(data) * (1 - part)))
        data, validation = nested.take(data, slice(None, kept)), nested.take(data, slice(kept, None))
    elif validation is not None and not isinstance(validation, keras.utils.PyDataset):
        if not isinstance(validation, (tuple, list)) or len(validation) not in (2, 3):
            raise UsageError(f"validation_data: got {type(validation).__name__}, {_DRAWN}: (x, y) or (x, y, weights)")
        validation = _arrays("validation_data", *validation)
    return data, validation


def _arrays(name: str, x: Any, y: Any = None, weights: Any = None) -> Any:
    if y is None or not (isinstance(x, (list, tuple, dict)) or hasattr(x, "__array__")):
        beside = " without y" if y is None else ""
        raise UsageError(f"{name}: got {type(x).__name__}{beside}, {_DRAWN}")
    parts = (x, y) if weights is None else (x, y, weights)
    data = tuple(keras.tree.map_structure(np.asarray, part) for part in parts)
    lengths = nested.lengths_of(data)
    if len(lengths) > 1 or not lengths[0]:
        raise UsageError(
            f"{name}: got arrays of {' and '.join(map(str, lengths))} rows, takes as many in each, at least 1"
        )
    return data


def _check_items(x: Any, batch_size: int) -> None:
    """Check the size of the data's items, because a micro-batch is made of whole items."""
    rows = _rows(x[0])
    if batch_size % rows:
        raise UsageError(
            f"x: got a PyDataset of {rows} samples an item, takes items of runai.elastic.batch_size samples, which is "
            f"{batch_size}, or of a part of it: on several devices a micro-batch is made of whole items"
        )


def _rows(data: Any) -> int:
    return len(keras.tree.flatten(data)[0])


def _callbacks(given: Any) -> Any:
    try:
        return user_callbacks.attached(given, keras=True)
    except UsageError as error:
        raise UsageError(str(error).replace("user_callback", "callbacks", 1)) from None


def _offer(gpus: int) -> None:
    """Offer the training as many slots as ``init`` was given, unless the environment sets another number."""
    os.environ.setdefault("EDT_CPU_SLOTS", str(gpus))
    if devices.count() > gpus:
        names = (os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(gpus)))).split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(names[:gpus])


def _follow(offset: object, engines: int, own: int, leads: bool) -> None:
    """Set the attributes of ``runai.elastic`` to the present engines. Called in an engine before each step."""
    elastic._set(gpus=engines, steps=own, master=leads)


class _History:
    """The driver's logger. In a job it writes the usual log lines; for Keras it keeps each epoch's loss and metrics."""

    def __init__(self, model: Any, micro_batches: int) -> None:
        self._model, self._micro_batches = model, micro_batches
        role = context.current()
        self._in_job = role is not None
        self._log = ELog(role.spec.log_dir if role is not None else "", micro_batches)
        """Writes nothing before ``on_train_begin``."""
        self._steps = 0
        self._epochs: dict[int, dict[str, float]] = {}
        """Metrics by epoch, from 1. The last step of an epoch brings the values over the whole epoch."""

    def on_train_begin(self) -> None:
        if self._in_job:
            self._log.on_train_begin()

    def on_train_end(self) -> None:
        self._log.on_train_end()

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        self._log.log_train_metrics(metrics, iteration, epoch, workers)
        self._epochs[epoch] = dict(metrics)
        self._steps = iteration // self._micro_batches // epoch

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        self._log.log_test_metrics(metrics, iteration, epoch)
        self._epochs.setdefault(epoch, {}).update({f"val_{name}": value for name, value in metrics.items()})

    def as_keras(self, epochs: int) -> Any:
        """Make Keras's own ``History``, which is also set as ``model.history``."""
        history = keras.callbacks.History()
        history.set_params({"epochs": epochs, "steps": self._steps, "verbose": 0})
        history.set_model(self._model)
        history.on_train_begin()
        for epoch, logs in sorted(self._epochs.items()):
            history.on_epoch_end(epoch - 1, logs)
        self._model.history = history
        return history
