"""TensorFlow behind the engine's flat vectors.

Vectors have the layout of ``frameworks.flat``, without the section ``present``: which parameters have gradients is
known when the model is traced. The section ``sums`` is [samples, loss x samples, metric states ...]. A Keras metric is
computed from states that can be added up. Its value is computed from their sums, so metrics that are no means (AUC,
precision) are correct, too.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tensorflow as tf
import torch
from torch import Tensor

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner import context
from edt_runner.adapter import State
from edt_runner.checkpoints.user_files import draft_of
from edt_runner.errors import RunnerError, UsageError
from edt_runner.frameworks.flat import FlatAdapter, FlatLayout, flat_dtype, type_name
from edt_runner.frameworks.tensorflow import (
    FRAMEWORK,
    give_up_determinism,
    lacks_determinism,
    op_that_raised,
)
from edt_runner.frameworks.tensorflow.keras_version import Averages, KerasVersion, Rescaling
from edt_runner.frameworks.tensorflow.passes import ByShape, Pass, Passes, as_tensors, effects_of
from edt_runner.frameworks.tensorflow.variables import Variables, sizes_of, to_tensorflow, to_torch
from edt_runner.lr_scaling.update import Scaling
from edt_runner.schedule import StepKind
from edt_runner.seeds import seed_python

_FINAL = "model_epoch_final"


class TensorFlowAdapter(FlatAdapter):
    """One compiled model with its optimizer, its loss and its metrics.

    Args:
        keras: the model's version of Keras.
        model: the compiled model; it is built here, from the probe, if it is not built yet.
        probe: a small batch like those of the training, as NumPy arrays: (x, y) or (x, y, sample_weight).
        by_rows: units of the data are whole batches, which may have different numbers of rows, so that rows are
            counted instead of units.

    Raises:
        UsageError: the model has no trainable weights.
    """

    def __init__(self, keras: KerasVersion, model: Any, probe: Any, *, by_rows: bool = False) -> None:
        super().__init__()
        self._keras, self.model, self._by_rows = keras, model, by_rows
        self._float_type = keras.keras.backend.floatx()
        self._probe = as_tensors(probe, self._float_type)
        _build(keras, model, self._probe)
        self._variables = Variables(keras, model)
        if not self._variables.trainable:
            raise UsageError("model: got a model without trainable weights, takes one that has some")
        self.dtype = flat_dtype(variable.dtype.name for variable in self._variables.weights)
        """Dtype of flat vectors, local and reduced."""
        self._type = tf.as_dtype(type_name(self.dtype))
        self.width = 2 + sum(sizes_of(self._variables.metrics))
        self._rescaling = Rescaling(keras, model.optimizer)
        self.optimizer_name = type(model.optimizer).__qualname__
        self._passes = Passes(keras, model, self._variables, self._type)
        self._committing: dict[Averages | None, Any] = {}
        self._own_steps: Tensor | None = None
        """How far the newest micro-batch of this process moved integer variables."""

    # ── layout ────────────────────────────────────────────────────────────────────────────────────────────────
    @functools.cached_property
    def layout(self) -> FlatLayout:  # type: ignore[override]
        """The layout of vectors. It is known when the model has been traced, which the first call does."""
        first = self._training.first
        return FlatLayout(
            gradients=sizes_of(self._variables.trainable),
            present=0,
            floats=sizes_of(first.floats),
            integers=sizes_of(first.integers),
            sums=self.width,
        )

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        found = {"loss": sums[1] / (sums[0] or 1.0)}
        if not self._variables.metrics:
            return found
        for name, value in self._valuing(tf.constant(sums[2:], self._type)).items():
            if name != "loss":
                numbers = value.numpy().reshape(-1).tolist()
                several = len(numbers) > 1  # the metric has a value for each class
                found |= {f"{name}_{index}" if several else name: number for index, number in enumerate(numbers)}
        return found

    @functools.cached_property
    def _valuing(self) -> Any:
        spec = tf.TensorSpec([self.width - 2], self._type)
        return tf.function(self._metric_values, autograph=False).get_concrete_function(spec)

    def _metric_values(self, states: Any) -> Any:
        """The metrics' values for summed states."""
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
        """Trace and run everything that a training does, so that a joining engine's first step takes no longer."""
        kept = [(variable, variable.read_value()) for variable in self._variables.everything]
        flat = torch.empty(self.size(StepKind.TRAIN), dtype=self.dtype)
        while True:
            try:
                self.micro_batch(batch, 1, 1, 0, flat)
                self.apply(flat)
                self.evaluate(batch, 1, 0, flat[-self.width :])
                self.values(self.sums(StepKind.VALIDATE, flat))
                break
            except tf.errors.UnimplementedError as error:
                if not lacks_determinism(error):
                    raise
                give_up_determinism()
                self.end_guarantee(op_that_raised(error), "has no deterministic implementation on this device")
            finally:
                for variable, value in kept:
                    variable.assign(value)
        self._own_steps = None

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        seed_python(seed)
        training = self._training
        rows = as_tensors(batch, self._float_type)
        chosen = training.of(rows)
        first = training.first
        if [*map(id, first.floats + first.integers)] != [*map(id, chosen.floats + chosen.integers)]:
            raise RunnerError("the model writes other variables for a batch of other shapes than the first sample's")
        share, count = self._weights(rows, count, total)
        gradients, tail = self._run(chosen, rows, share, count, seed)
        crash_point(CrashPoint.ENGINE_BACKWARD, at=context.page.offset, who=context.page.engine)
        local[self.gradient_size :].copy_(to_torch(tail))
        flat = self.layout.sections(local)
        present = iter(gradients)
        parts = torch.split(flat.gradients, self.layout.gradients)
        for part, used in zip(parts, chosen.used, strict=True):
            if used:
                torch.mul(to_torch(next(present)).reshape(-1).to(self.dtype), share, out=part)
            else:
                part.zero_()
        if len(flat.integers):
            self._own_steps = flat.integers.clone()

    def evaluate(self, batch: Any, count: int, seed: int, local: Tensor) -> None:
        seed_python(seed)
        rows = as_tensors(batch, self._float_type)
        _, tail = self._run(self._evaluation.of(rows), rows, 1.0, self._weights(rows, count, count)[1], seed)
        local.copy_(to_torch(tail))

    def apply(self, reduced: Tensor) -> bool:
        commit = self._committing.get(self._rescaling.averages) or self._trace_commit()
        flat = self.layout.sections(reduced)
        if (
            self._own_steps is not None
            and flat.active
            and not torch.equal(self._own_steps * flat.active, flat.integers)
        ):
            names = ", ".join(map(_name, self._training.first.integers))
            self.end_guarantee(names, "an integer variable that micro-batches move differently")
        # A GPU may still read this memory when the next reduction writes to it.
        commit(to_tensorflow(reduced.clone() if FRAMEWORK.gpus() else reduced))
        return True

    def _trace_commit(self) -> Any:
        spec = tf.TensorSpec([self.size(StepKind.TRAIN)], self._type)
        with self._rescaling.tracing():
            commit = tf.function(self._commit, autograph=False).get_concrete_function(spec)
        own = {id(variable) for variable in self._variables.everything}
        for variable in effects_of(commit).written:
            if id(variable) not in own:
                self.end_guarantee(_name(variable), "a variable that the optimizer writes and does not list")
        self._committing[self._rescaling.averages] = commit
        return commit

    def _commit(self, reduced: Any) -> None:
        """Take one optimizer step, and commit what the forward passes moved."""
        passed, trainable = self._training.first, self._variables.trainable
        gradients, _, floats, changed, integers, active, sums = self.layout.sections(reduced, tf.split)
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
    def has_betas(self) -> bool:
        return self._rescaling.has_betas

    @property
    def gradient_scale(self) -> float:
        return self._keras.loss_scale(self.model.optimizer)

    @property
    def absorbs_overflow(self) -> bool:
        return self.gradient_scale != 1.0

    @property
    def learning_rate(self) -> float | None:
        return float(self._keras.learning_rate(self.model.optimizer))

    def is_finite(self) -> bool:
        return all(bool(tf.reduce_all(tf.math.is_finite(each))) for each in self._variables.trainable)

    def gradient_weight(self, sums: Sequence[float]) -> float | None:
        return sums[0] if self._by_rows else None

    def rescaled(self, scaling: Scaling) -> AbstractContextManager[Sequence[float]]:
        return self._rescaling.at(scaling)

    def _weights(self, batch: Any, count: int, total: int) -> tuple[float, int]:
        """A micro-batch's share of the step, and its number of samples.

        If units are whole batches, the rows of a step are only known from its sums. The share is then the number of
        rows, and the step divides by the sum.
        """
        if not self._by_rows:
            return count / total, count
        rows = int(tf.nest.flatten(batch)[0].shape[0])
        return float(rows), rows

    def _run(self, chosen: Pass, rows: Any, share: float, count: int, seed: int) -> Any:
        numbers = tf.constant(share, self._type), tf.constant(count, self._type)
        return chosen.run(tf.nest.flatten(rows), *numbers, tf.constant(chosen.seeds(seed), tf.int64))

    @functools.cached_property
    def _evaluation(self) -> ByShape:
        return ByShape(self._probe, self._passes.evaluate)

    @functools.cached_property
    def _training(self) -> ByShape:
        training = ByShape(self._probe, self._passes.train)
        first = training.first
        if not any(first.used):
            raise UsageError("loss_function: the loss depends on no trainable weight of the model")
        for name in first.foreign:
            self.end_guarantee(name, "a variable that the model writes and that is none of its weights")
        for name in first.random:
            self.end_guarantee(name, "a random op with a state of its own, which no seed reaches: use keras.random")
        return training

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

    def save_for_user(self, folder: Path, name: str) -> None:
        """Write the user's files. The final files hold the weights as at the end of ``fit``; this process keeps the
        training's weights."""
        if name != _FINAL:
            _save(self._keras, self.model, folder, name, serving=False)
            return
        kept = [(variable, variable.read_value()) for variable in self._variables.trainable]
        self._keras.finish(self.model)
        try:
            _save(self._keras, self.model, folder, name, serving=True)
        finally:
            for variable, value in kept:
                variable.assign(value)


def _build(keras: KerasVersion, model: Any, probe: Any) -> None:
    """Create the variables of layers, loss, metrics and optimizer, by one evaluation of the probe."""
    x, y, weights = (*probe, None, None)[:3]
    outputs = keras.call(model, x, training=False)
    keras.compute_loss(model, x, y, outputs, weights, training=False)
    model.compute_metrics(x, y, outputs, weights)
    model.reset_metrics()
    keras.build_optimizer(model.optimizer, model.trainable_variables)


def _name(variable: Any) -> str:
    return str(variable.name).partition(":")[0]


def _parts(flat: Any, variables: Sequence[Any], dtype: Any = None) -> list[Any]:
    """Slices of a flat tensor, with the shapes and types of ``variables``."""
    pieces = tf.split(flat, sizes_of(variables)) if variables else []
    return [
        tf.cast(tf.reshape(piece, variable.shape), dtype or variable.dtype)
        for piece, variable in zip(pieces, variables, strict=True)
    ]


_CANNOT_WRITE = (NotImplementedError, TypeError, ValueError)
"""Errors that Keras raises for a model that it cannot describe."""


def _save(keras: KerasVersion, model: Any, folder: Path, name: str, *, serving: bool) -> None:
    """Write the files that a user downloads: ``name``.keras, and for ``serving`` the SavedModel folder ``name``.

    Each is written completely or not at all. If Keras cannot describe the model, the training must not be lost: its
    weights are written instead, and the reason is printed on standard error.
    """
    path = folder / f"{name}.keras"
    try:
        with draft_of(path) as draft:
            model.save(draft)
    except _CANNOT_WRITE as error:
        weights = folder / f"{name}.weights.h5"
        _print_error(f"{path.name} cannot be written, {weights.name} is instead", error)
        with draft_of(weights) as draft:
            model.save_weights(draft)
    if not serving:
        return
    try:
        with draft_of(folder / name) as draft, _quiet():
            keras.export(model, str(draft))
    except _CANNOT_WRITE as error:
        _print_error(f"the SavedModel {name} cannot be written", error)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide messages in which TensorFlow logs the path of the draft, and how it has renamed its own names."""
    logger = tf.get_logger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _print_error(what: str, error: Exception) -> None:
    why = " ".join(str(error).split()).partition(". ")[0]
    print(f"edt: {what}: {why}", file=sys.stderr, flush=True)
