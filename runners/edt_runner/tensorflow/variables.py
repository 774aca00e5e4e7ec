"""All variables of a training, by what they are to it, and their values as torch tensors. Room: runners."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edt_runner.engine.adapter import State
from edt_runner.errors import StateMismatch
from edt_runner.tensorflow import bridge
from edt_runner.tensorflow.generation import Generation

_COUNTED = re.compile(r"_\d+$")


class Variables:
    """Of one compiled model whose layers, loss and metrics are built and whose optimizer has its variables.

    All are given as ``tf.Variable``. Seed generators and metrics are no state: between two micro-batches they stand at
    their first values, whatever the training has seen.
    """

    def __init__(self, keras: Generation, model: Any) -> None:
        self._keras, self._model = keras, model
        self.trainable = [keras.value(variable) for variable in model.trainable_variables]
        self.weights = [keras.value(variable) for variable in model.weights]
        self.optimizer = [keras.value(variable) for variable in keras.optimizer_variables(model.optimizer)]
        self.metrics, self.shown = (
            _unique(
                keras.value(variable)
                for metric in model.metrics
                if (metric.name == "loss") is shown
                for variable in metric.variables
            )
            for shown in (False, True)
        )
        """Shown: of the mean loss that ``fit`` would show; ours is kept apart."""
        self.by_batch = {
            id(keras.value(variable)) for metric in keras.means_over_batches(model) for variable in metric.variables
        }
        """Of ``metrics``, those that a micro-batch moves as one row would."""
        self._named = {f"model.{i}.{role_of(keras, v)}": keras.value(v) for i, v in enumerate(model.weights)}
        self._named |= {f"optimizer.{index}": variable for index, variable in enumerate(self.optimizer)}
        self._paths = dict(zip(self._named, map(keras.path, self._in_order()), strict=True))
        self._incoming: dict[str, Tensor] = {}
        self.settings_taken = 0
        """How often a setting of the optimizer was another engine's: graphs with the one before are of no more use."""
        self._first = [(variable, variable.numpy()) for variable in (*self.metrics, *keras.generators(model))]

    def rest(self) -> None:
        """Put seed generators and metrics back to their first values: user code may have evaluated the model."""
        for variable, value in self._first:
            variable.assign(value)

    def _in_order(self) -> list[Any]:
        return [*self._model.weights, *self._keras.optimizer_variables(self._model.optimizer)]

    @property
    def everything(self) -> list[Any]:
        """Seed generators included."""
        generators = self._keras.generators(self._model)
        return _unique([*self.weights, *self.optimizer, *self.metrics, *self.shown, *generators])

    # ── out and in ────────────────────────────────────────────────────────────────────────────────────────────
    def export(self) -> State:
        """Views of the values: they stay what they are now."""
        tensors = {name: bridge.to_torch(variable.read_value()) for name, variable in self._named.items()}
        meta = {"keras": self._keras.name, "optimizer": type(self._model.optimizer).__qualname__}
        return State({**meta, "settings": self._settings()}, tensors, self._paths)

    def _settings(self) -> dict[str, Any]:
        """What the optimizer was made with, as far as it is plain: a step's graph holds it as constants."""
        optimizer = self._model.optimizer
        try:
            config = getattr(optimizer, "inner_optimizer", optimizer).get_config()
        except NotImplementedError:  # an optimizer of the user's own that does not tell
            return {}
        plain = {name: _plain(value) for name, value in config.items() if name != "name"}  # Keras counts those
        return {name: value for name, value in plain.items() if isinstance(value, bool | int | float | str | None)}

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Tensor]:
        """Raises StateMismatch for a state of another model, optimizer or generation of Keras."""
        own = {"keras": self._keras.name, "optimizer": type(self._model.optimizer).__qualname__}
        for what, mine in own.items():
            if meta[what] != mine:
                raise StateMismatch(f"{what}: {meta[what]} in the training, {mine} in this process")
        for kind, what in (("model", "model"), ("optimizer", "optimizer")):
            theirs = {name for name in shapes if name.startswith(f"{kind}.")}
            ours = {name for name in self._named if name.startswith(f"{kind}.")}
            if theirs != ours:
                differ = ", ".join(sorted(theirs ^ ours))
                raise StateMismatch(f"the {what} of this process has other variables: {differ}")
        self._take_settings(meta.get("settings", {}))  # an earlier release did not tell them
        self._incoming = {}
        for name, (dtype, shape) in shapes.items():
            variable = self._named[name]
            own_type, own_shape = _type_name(bridge.torch_type(variable.dtype)), variable.shape.as_list()
            if (own_type, own_shape) != (dtype, shape):
                raise StateMismatch(
                    f"{self._paths[name]}: {dtype} {shape} in the training, {own_type} {own_shape} in this process"
                )
            self._incoming[name] = torch.empty(shape, dtype=getattr(torch, dtype))
        return self._incoming

    def _take_settings(self, settings: Mapping[str, Any]) -> None:
        own = self._settings()
        optimizer = getattr(self._model.optimizer, "inner_optimizer", self._model.optimizer)
        for name, value in settings.items():
            if name in own and own[name] != value and not isinstance(value, str):
                setattr(optimizer, name, value)
                self.settings_taken += name != "learning_rate"  # which is a variable

    def end_import(self) -> None:
        for name, tensor in self._incoming.items():
            self._named[name].assign(bridge.to_tensorflow(tensor))
        self._incoming = {}


def _plain(value: Any) -> Any:
    """A number that NumPy holds, as Python has it; a schedule as text, if it can be told."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        with contextlib.suppress(TypeError):
            return json.dumps(value, sort_keys=True)
    return value


def digest_of(state: State) -> str:
    """SHA-256 over names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.tensors.items()):
        digest.update(f"{name} {_type_name(tensor.dtype)} {list(tensor.shape)}\n".encode())
        if tensor.numel():
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def role_of(keras: Generation, variable: Any) -> str:
    """``kernel`` of ``sequential_2/dense_7/kernel``, ``variable`` of ``own/variable_3``: Keras counts layers, and
    weights without a name, by process, so that the rest of a name says nothing; which variable it is, its place says.
    """
    return _COUNTED.sub("", keras.path(variable).rpartition("/")[2])


def size_of(variables: Sequence[Any]) -> int:
    """Numbers in them, together."""
    return sum(variable.shape.num_elements() for variable in variables)


def _unique(variables: Any) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
