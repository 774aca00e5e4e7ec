"""All variables of a training, by their role, and their values as torch tensors.

Tensors of TensorFlow and of torch share their memory where possible. While another object holds a variable's value,
TensorFlow replaces the value instead of overwriting it. So a view of a variable keeps the value that it had when the
view was made.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import torch
import torch.utils.dlpack
from torch import Tensor

from edt_runner.adapter import State
from edt_runner.errors import StateMismatch
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion, inner_optimizer

_COUNTED = re.compile(r"_\d+$")


class Variables:
    """The variables of one compiled model. Its layers, loss and metrics are built, and its optimizer has variables.

    All are ``tf.Variable``s. Seed generators and metrics are not part of the state: between two micro-batches they have
    their first values, at any point of the training.
    """

    def __init__(self, keras: KerasVersion, model: Any) -> None:
        self._keras, self._model = keras, model
        self.trainable = [keras.value(variable) for variable in model.trainable_variables]
        of_metrics = {id(variable) for metric in model.metrics for variable in metric.variables}
        weights = [weight for weight in model.weights if id(weight) not in of_metrics]  # Keras 2 counts them as weights
        of_optimizer = keras.optimizer_variables(model.optimizer)
        self.weights = [keras.value(variable) for variable in weights]
        self.optimizer = [keras.value(variable) for variable in of_optimizer]
        self.metrics, self.shown = (
            _unique(
                keras.value(variable)
                for metric in model.metrics
                if (metric.name == "loss") is shown
                for variable in metric.variables
            )
            for shown in (False, True)
        )
        """``shown`` are those of the mean loss that ``fit`` would show. The runner computes its own mean loss."""
        self.by_batch = {
            id(keras.value(variable)) for metric in keras.means_over_batches(model) for variable in metric.variables
        }
        """Ids of those of ``metrics`` that a micro-batch changes as if it were one row."""
        self._named = {f"model.{i}.{role_of(keras, v)}": keras.value(v) for i, v in enumerate(weights)}
        self._named |= {f"optimizer.{index}": variable for index, variable in enumerate(self.optimizer)}
        self._paths = dict(zip(self._named, map(keras.path, [*weights, *of_optimizer]), strict=True))
        self._incoming: dict[str, Tensor] = {}
        self.settings_taken = 0
        """How often another engine's value of an optimizer setting was taken. Older graphs are then out of date."""
        self._first = [(variable, variable.numpy()) for variable in (*self.metrics, *keras.generators(model))]

    def rest(self) -> None:
        """Put seed generators and metrics back to their first values. User code may have evaluated the model."""
        for variable, value in self._first:
            variable.assign(value)

    @property
    def everything(self) -> list[Any]:
        """All variables, including those of seed generators."""
        generators = self._keras.generators(self._model)
        return _unique([*self.weights, *self.optimizer, *self.metrics, *self.shown, *generators])

    # ── out and in ────────────────────────────────────────────────────────────────────────────────────────────
    def export(self) -> State:
        """The state, as views of the present values. The views do not change when the variables do."""
        tensors = {name: to_torch(variable.read_value()) for name, variable in self._named.items()}
        meta = {"keras": self._keras.name, "optimizer": type(self._model.optimizer).__qualname__}
        return State({**meta, "settings": self.settings()}, tensors, self._paths)

    def settings(self) -> dict[str, Any]:
        """The optimizer's settings, as far as they are plain values. A step's graph holds them as constants."""
        optimizer = self._model.optimizer
        try:
            config = inner_optimizer(optimizer).get_config()
        except NotImplementedError:  # a user's own optimizer without a config
            return {}
        plain = {name: _plain(value) for name, value in config.items() if name != "name"}  # Keras numbers the names
        return {name: value for name, value in plain.items() if isinstance(value, bool | int | float | str | None)}

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Begin to receive a state.

        Returns:
            Tensors by name, which the caller fills before ``end_import``.

        Raises:
            StateMismatch: the state is of another model, optimizer or version of Keras.
        """
        own = {"keras": self._keras.name, "optimizer": type(self._model.optimizer).__qualname__}
        for what, mine in own.items():
            if meta[what] != mine:
                raise StateMismatch(f"{what}: {meta[what]} in the training, {mine} in this process")
        for what in ("model", "optimizer"):
            theirs = {name for name in shapes if name.startswith(f"{what}.")}
            ours = {name for name in self._named if name.startswith(f"{what}.")}
            if theirs != ours:
                differ = ", ".join(sorted(theirs ^ ours))
                raise StateMismatch(f"the {what} of this process has other variables: {differ}")
        self._take_settings(meta.get("settings", {}))  # an earlier release did not send them
        self._incoming = {}
        for name, (dtype, shape) in shapes.items():
            variable = self._named[name]
            own_type, own_shape = variable.dtype.name, variable.shape.as_list()
            if (own_type, own_shape) != (dtype, shape):
                raise StateMismatch(
                    f"{self._paths[name]}: {dtype} {shape} in the training, {own_type} {own_shape} in this process"
                )
            self._incoming[name] = torch.empty(shape, dtype=getattr(torch, dtype))
        return self._incoming

    def _take_settings(self, settings: Mapping[str, Any]) -> None:
        own = self.settings()
        optimizer = inner_optimizer(self._model.optimizer)
        for name, value in settings.items():
            if name in own and own[name] != value and not isinstance(value, str):
                setattr(optimizer, name, value)
                self.settings_taken += name != "learning_rate"  # the learning rate is a variable, not a constant

    def end_import(self) -> None:
        for name, tensor in self._incoming.items():
            self._named[name].assign(to_tensorflow(tensor))
        self._incoming = {}


def _plain(value: Any) -> Any:
    """A NumPy number as a Python number; a schedule as JSON text, if it can be written as such; else ``value``."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        with contextlib.suppress(TypeError):
            return json.dumps(value, sort_keys=True)
    return value


def role_of(keras: KerasVersion, variable: Any) -> str:
    """The last part of a variable's name without its number: ``kernel`` of ``sequential_2/dense_7/kernel``,
    ``variable`` of ``own/variable_3``.

    Keras numbers layers, and weights without a name, in each process, so the rest of a name differs between processes.
    A variable is identified by its place.
    """
    return _COUNTED.sub("", keras.path(variable).rpartition("/")[2])


def sizes_of(variables: Sequence[Any]) -> list[int]:
    """How many numbers each variable has."""
    return [variable.shape.num_elements() for variable in variables]


def parts_of(flat: Any, variables: Sequence[Any], dtype: Any = None) -> list[Any]:
    """Slices of a flat tensor, with the shapes and types of ``variables``."""
    pieces = tf.split(flat, sizes_of(variables)) if variables else []
    return [
        tf.cast(tf.reshape(piece, variable.shape), dtype or variable.dtype)
        for piece, variable in zip(pieces, variables, strict=True)
    ]


def _unique(variables: Any) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


_ALIGNMENT = 64
"""Bytes. TensorFlow aborts the process if a tensor in host memory does not begin at a multiple of this."""


def to_torch(tensor: Any) -> Tensor:
    """A torch tensor with the same memory. A tensor on a GPU is copied to the host first."""
    host = tensor if "CPU" in tensor.device else on_host(tensor)
    view: Tensor = torch.utils.dlpack.from_dlpack(tf.experimental.dlpack.to_dlpack(host))
    return view


def on_host(tensor: Any) -> Any:
    """The same values in host memory, as an op."""
    with tf.device("/CPU:0"):
        return tf.identity(tensor)


def to_tensorflow(tensor: Tensor) -> Any:
    """A TensorFlow tensor with the same memory. That memory must not change while the tensor is in use."""
    return tf.experimental.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(aligned(tensor)))  # type: ignore[attr-defined]


def aligned(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy of it if TensorFlow cannot take its memory as it is."""
    if tensor.data_ptr() % _ALIGNMENT or not tensor.is_contiguous():
        return tensor.clone(memory_format=torch.contiguous_format)
    return tensor
