"""TensorFlow behind the engine's flat vectors. Room: runners; knows Keras models and optimizers.

A leaf of a training tick is laid out as

    gradients | float variables | a flag each: it changed | integer steps | 1 | sums

in host memory, whatever the device. The single 1 counts the micro-batches that were not empty; sums are [count, loss x
count, metric states …]. A metric of Keras is made of states that add up; its value comes from their sums, so that those
which are no means (AUC, precision) are right, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tensorflow as tf
import torch
from torch import Tensor

from edt_runner.crash_points import CrashPoint, crash_point
from edt_runner.engine import position
from edt_runner.engine.adapter import State
from edt_runner.engine.schedule import TickKind
from edt_runner.engine.seeds import seed_python
from edt_runner.errors import RunnerError, UsageError
from edt_runner.guarantee import Guarantee
from edt_runner.scaling.update import Scaling
from edt_runner.tensorflow import batches, bridge, determinism, saving
from edt_runner.tensorflow.batches import ByShape
from edt_runner.tensorflow.framework import FRAMEWORK
from edt_runner.tensorflow.generation import Generation
from edt_runner.tensorflow.graphs import effects_of
from edt_runner.tensorflow.passes import Pass, Passes
from edt_runner.tensorflow.rescaling import Averages, Rescaling
from edt_runner.tensorflow.variables import Variables, digest_of, size_of

_FINAL = "model_epoch_final"


class TensorFlowAdapter(Guarantee):
    """One compiled model with its optimizer, its loss and its metrics.

    Args:
        keras: the model's generation of Keras.
        model: compiled; built here from the probe where it is not yet.
        probe: a small batch like those of the training, NumPy arrays: (x, y) or (x, y, sample_weight).
        by_rows: units of the data are whole batches, perhaps of different numbers of rows: a row counts, not a unit.

    Raises:
        UsageError: the model has nothing to train.
    """

    def __init__(self, keras: Generation, model: Any, probe: Any, *, by_rows: bool = False) -> None:
        super().__init__()
        self._keras, self.model, self._by_rows = keras, model, by_rows
        self._float_type = keras.keras.backend.floatx()
        self._probe = batches.tensors(probe, self._float_type)
        _build(keras, model, self._probe)
        self._variables = Variables(keras, model)
        if not self._variables.trainable:
            raise UsageError("model: got a model without trainable weights, takes one that has some")
        self.dtype = torch.float64 if any(v.dtype is tf.float64 for v in self._variables.weights) else torch.float32
        """Type of leaves and sums: float64 if any weight has it."""
        self._type = tf.as_dtype(str(self.dtype).removeprefix("torch."))
        self.width = 2 + size_of(self._variables.metrics)
        self._rescaling = Rescaling(keras, model.optimizer)
        self.sums_rows = by_rows
        self._gradient_sizes = [size_of([variable]) for variable in self._variables.trainable]
        self._passes = Passes(keras, model, self._variables, self._type)
        self._train: ByShape[Pass] | None = None
        self._evaluate: ByShape[Pass] | None = None
        self._committing: dict[Averages | None, Any] = {}
        self._valuing: Any = None
        self._own_steps: Tensor | None = None
        """What the newest micro-batch of this process did to integer variables."""

    # ── layout ────────────────────────────────────────────────────────────────────────────────────────────────
    def size(self, kind: TickKind) -> int:
        """Of a training tick it is known when the model has been traced, which the first call does."""
        return self.width if kind is TickKind.VALIDATE else sum(self._sizes)

    @functools.cached_property
    def _sizes(self) -> list[int]:
        first = self._training().first
        return [
            self.gradient_size,
            size_of(first.floats),
            len(first.floats),
            size_of(first.integers),
            1,
            self.width,
        ]

    @property
    def gradient_size(self) -> int:
        return sum(self._gradient_sizes)

    def sums(self, kind: TickKind, numbers: Tensor) -> list[float]:
        values: list[float] = numbers[-self.width :].tolist()
        return values

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        found = {"loss": sums[1] / (sums[0] or 1.0)}
        if not self._variables.metrics:
            return found
        if self._valuing is None:
            spec = tf.TensorSpec([self.width - 2], self._type)
            self._valuing = tf.function(self._metric_values, autograph=False).get_concrete_function(spec)
        for name, value in self._valuing(tf.constant(sums[2:], self._type)).items():
            if name != "loss":
                numbers = value.numpy().reshape(-1).tolist()
                several = len(numbers) > 1  # a metric for each class
                found |= {f"{name}_{index}" if several else name: number for index, number in enumerate(numbers)}
        return found

    def _metric_values(self, states: Any) -> Any:
        """What the metrics say of summed states."""
        variables = self._variables.metrics
        before = [variable.read_value() for variable in variables]
        for variable, first, part in zip(variables, before, _parts(states, variables), strict=True):
            variable.assign(first + part)
        values = {name: tf.identity(value) for name, value in self.model.get_metrics_result().items()}
        for variable, first in zip(variables, before, strict=True):
            variable.assign(first)
        return values

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────────────
    def warm_up(self, batch: Any) -> None:
        """Trace and run all that a training does, so that a newcomer's first step is no longer than others'."""
        kept = [(variable, variable.read_value()) for variable in self._variables.everything]
        leaf = torch.empty(self.size(TickKind.TRAIN), dtype=self.dtype)
        again = True
        while again:
            again = False
            try:
                self.micro_batch(batch, 1, 1, 0, leaf)
                self.apply(leaf)
                self.evaluate(batch, 1, 0, leaf[-self.width :])
                self.values(self.sums(TickKind.VALIDATE, leaf))
            except tf.errors.UnimplementedError as error:
                again = determinism.is_lacking(error)
                if not again:
                    raise
                determinism.give_up()
                self.end_guarantee(determinism.op_of(error), "has no deterministic implementation on this device")
            finally:
                for variable, value in kept:
                    variable.assign(value)
        self._own_steps = None

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, leaf: Tensor) -> None:
        seed_python(seed)
        training = self._training()
        rows = batches.tensors(batch, self._float_type)
        chosen = training.of(rows)
        self._check_alike(training.first, chosen)
        share, count = self._weights(rows, count, total)
        gradients, tail = self._run(chosen, rows, share, count, seed)
        crash_point(CrashPoint.ENGINE_BACKWARD, at=position.board.tick, who=position.board.engine)
        grad_size, *_, integer_size, _, _ = self._sizes
        place, rest = torch.split(leaf, [grad_size, len(leaf) - grad_size])
        rest.copy_(bridge.to_torch(tail))
        present = iter(gradients)
        parts = torch.split(place, self._gradient_sizes)
        for part, used in zip(parts, chosen.used, strict=True):
            if used:
                torch.mul(bridge.to_torch(next(present)).reshape(-1).to(self.dtype), share, out=part)
            else:
                part.zero_()
        if integer_size:
            self._own_steps = torch.split(leaf, self._sizes)[3].clone()

    def evaluate(self, batch: Any, count: int, seed: int, leaf: Tensor) -> None:
        seed_python(seed)
        if self._evaluate is None:
            self._evaluate = ByShape(self._probe, self._passes.evaluate)
        rows = batches.tensors(batch, self._float_type)
        _, tail = self._run(self._evaluate.of(rows), rows, 1.0, self._weights(rows, count, count)[1], seed)
        leaf.copy_(bridge.to_torch(tail))

    def apply(self, vector: Tensor) -> bool:
        commit = self._committing.get(self._rescaling.averages) or self._trace_commit()
        _, _, _, integers, active, _ = torch.split(vector, self._sizes)
        if self._own_steps is not None and active and not torch.equal(self._own_steps * active, integers):
            names = ", ".join(map(_name, self._training().first.integers))
            self.end_guarantee(names, "an integer variable that micro-batches move differently")
        # A GPU may still be reading it when the next reduction writes over it.
        commit(bridge.to_tensorflow(vector.clone() if FRAMEWORK.gpus() else vector))
        return True

    def _trace_commit(self) -> Any:
        spec = tf.TensorSpec([self.size(TickKind.TRAIN)], self._type)
        with self._rescaling.tracing():
            commit = tf.function(self._commit, autograph=False).get_concrete_function(spec)
        own = {id(variable) for variable in self._variables.everything}
        for variable in effects_of(commit).written:
            if id(variable) not in own:
                self.end_guarantee(_name(variable), "a variable that the optimizer writes and does not list")
        self._committing[self._rescaling.averages] = commit
        return commit

    def _commit(self, vector: Any) -> None:
        """One optimizer step, and what the forward passes moved."""
        passed, trainable = self._training().first, self._variables.trainable
        gradients, floats, changed, integers, active, sums = tf.split(vector, self._sizes)
        if self._by_rows:
            gradients, floats = gradients / tf.maximum(sums[0], 1.0), floats / tf.maximum(sums[0], 1.0)
        for index, (variable, part) in enumerate(zip(passed.floats, _parts(floats, passed.floats), strict=True)):
            variable.assign(tf.where(changed[index] > 0, part, variable.read_value()))
        steps = tf.round(integers / tf.maximum(active, 1.0))
        for variable, part in zip(passed.integers, _parts(steps, passed.integers, tf.int64), strict=True):
            variable.assign(tf.cast(tf.cast(variable.read_value(), tf.int64) + part, variable.dtype))
        pairs = zip(_parts(gradients, trainable), self.model.trainable_variables, passed.used, strict=True)
        chosen = [(gradient, variable) for gradient, variable, used in pairs if used]
        self._keras.apply(self.model.optimizer, [gradient for gradient, _ in chosen], [v for _, v in chosen])

    @property
    def optimizer_name(self) -> str:
        return type(self.model.optimizer).__qualname__

    @property
    def has_betas(self) -> bool:
        return self._rescaling.has_betas

    @property
    def gradient_scale(self) -> float:
        return self._keras.loss_scale(self.model.optimizer)

    def rescaled(self, scaling: Scaling) -> AbstractContextManager[Sequence[float]]:
        return self._rescaling.at(scaling)

    def details(self) -> dict[str, float]:
        return {}

    def _weights(self, batch: Any, count: int, total: int) -> tuple[float, int]:
        """A micro-batch's share of the step, and what it counts. How many rows a step of whole batches has is only
        known from its sums: there a share is the rows themselves, and the step divides by them."""
        if not self._by_rows:
            return count / total, count
        rows = int(tf.nest.flatten(batch)[0].shape[0])
        return float(rows), rows

    def _run(self, chosen: Pass, rows: Any, share: float, count: int, seed: int) -> Any:
        number: Callable[[float], Any] = lambda value: tf.constant(value, self._type)  # noqa: E731
        seeds = tf.constant(chosen.seeds(seed), tf.int64)
        return chosen.run(tf.nest.flatten(rows), number(share), number(count), seeds)

    def _training(self) -> ByShape[Pass]:
        if self._train is None:
            self._train = ByShape(self._probe, self._passes.train)
            first = self._train.first
            if not any(first.used):
                raise UsageError("loss_function: the loss depends on no trainable weight of the model")
            for name in first.foreign:
                self.end_guarantee(name, "a variable that the model writes and that is none of its weights")
            for name in first.random:
                self.end_guarantee(name, "a random op with a state of its own, which no seed reaches: use keras.random")
        return self._train

    def _check_alike(self, first: Pass, chosen: Pass) -> None:
        same = [v is w for v, w in zip(first.floats + first.integers, chosen.floats + chosen.integers, strict=False)]
        if len(first.floats + first.integers) != len(chosen.floats + chosen.integers) or not all(same):
            raise RunnerError("the model writes other variables for a batch of other shapes than the first sample's")

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def export_state(self) -> State:
        return self._variables.export()

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Tensor]:
        taken = self._variables.settings_taken
        places = self._variables.begin_import(meta, shapes)
        if self._variables.settings_taken > taken:
            self._committing.clear()
        return places

    def end_import(self) -> None:
        self._variables.end_import()

    def recommit(self) -> None:
        self._variables.rest()

    def digest(self) -> str:
        return digest_of(self.export_state())

    def save_for_user(self, folder: Path, name: str) -> None:
        """The final files hold what ``fit`` would end with; this process goes on with what the training has."""
        if name != _FINAL:
            saving.save(self._keras, self.model, folder, name, serving=False)
            return
        kept = [(variable, variable.read_value()) for variable in self._variables.trainable]
        self._keras.finish(self.model)
        try:
            saving.save(self._keras, self.model, folder, name, serving=True)
        finally:
            for variable, value in kept:
                variable.assign(value)


def _build(keras: Generation, model: Any, probe: Any) -> None:
    """Give layers, loss, metrics and optimizer their variables, by one evaluation of the probe."""
    x, y, weights = (*probe, None, None)[:3]
    outputs = keras.call(model, x, training=False)
    keras.compute_loss(model, x, y, outputs, weights, training=False)
    model.compute_metrics(x, y, outputs, weights)
    model.reset_metrics()
    keras.build_optimizer(model.optimizer, model.trainable_variables)


def _name(variable: Any) -> str:
    return str(variable.name).partition(":")[0]


def _parts(flat: Any, variables: Sequence[Any], dtype: Any = None) -> list[Any]:
    """Slices of a flat tensor in the shapes and types of ``variables``."""
    pieces = tf.split(flat, [size_of([variable]) for variable in variables]) if variables else []
    return [
        tf.cast(tf.reshape(piece, variable.shape), dtype or variable.dtype)
        for piece, variable in zip(pieces, variables, strict=True)
    ]
