"""TensorFlow behind the engine's flat vectors.

Vectors have the layout of ``frameworks.flat``, without the section ``present``: which parameters have gradients is
known when the model is traced. The section ``sums`` is [samples, loss x samples, metrics ...] (``metrics``), and at its
end the number of tokens, if a loss is a mean over these.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import tensorflow as tf
import torch
from torch import Tensor

from edt_contract.crash_points import CrashPoint, crash_point
from edt_runner import context
from edt_runner.adapter import State
from edt_runner.comm.tree_reduction import Sink
from edt_runner.errors import RunnerError, UsageError
from edt_runner.frameworks.flat import FlatAdapter, FlatLayout, Sections, flat_dtype, is_finite, squared_norm, type_name
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.tensorflow import (
    FRAMEWORK,
    give_up_determinism,
    gradients,
    lacks_determinism,
    op_that_raised,
)
from edt_runner.frameworks.tensorflow.files import save
from edt_runner.frameworks.tensorflow.keras_version import KerasVersion, inner_optimizer
from edt_runner.frameworks.tensorflow.metrics import Metrics
from edt_runner.frameworks.tensorflow.own_steps import OwnSteps
from edt_runner.frameworks.tensorflow.passes import ByShape, Pass, Passes, as_tensors, effects_of
from edt_runner.frameworks.tensorflow.rescaling import Averages, Rescaling
from edt_runner.frameworks.tensorflow.variables import Variables, parts_of, sizes_of, to_torch
from edt_runner.lr_scaling.update import Scaling
from edt_runner.schedule import StepKind
from edt_runner.seeds import seed_python
from edt_runner.step_times import Phase, clock

_FINAL = "model_epoch_final"
_EPSILON = 1e-6
"""Added to a norm before something is divided by it, as on PyTorch's side."""
_PLAIN = StepOptions()
_NOT_COMPILED = (tf.errors.InvalidArgumentError, tf.errors.InternalError, tf.errors.UnimplementedError)
"""Errors of XLA that cannot compile a graph."""


class TensorFlowAdapter(FlatAdapter):
    """One compiled model with its optimizer, its loss and its metrics.

    Args:
        keras: the model's version of Keras.
        model: the compiled model; it is built here, from the probe, if it is not built yet.
        probe: a small batch like those of the training, as NumPy arrays: (x, y) or (x, y, sample_weight).
        by_rows: units of the data are whole batches, which may have different numbers of rows, so that rows are
            counted instead of units.
        sums: the loss of a micro-batch is a sum over its samples. Gradients are then added up, not averaged.
        tokens: a function batch -> number of its tokens. The sum of a step's gradients is divided by the step's tokens.
            None: it is not divided. Only with ``sums``.
        validates: there is a test set.
        options: what the user asks of passes and steps.

    Raises:
        UsageError: the model has no trainable weights, or a train_step that several engines cannot compute together.
    """

    def __init__(
        self,
        keras: KerasVersion,
        model: Any,
        probe: Any,
        *,
        by_rows: bool = False,
        sums: bool = False,
        tokens: Callable[[Any], float] | None = None,
        validates: bool = True,
        options: StepOptions = _PLAIN,
    ) -> None:
        super().__init__()
        self._keras, self.model, self._by_rows, self._sums, self._options = keras, model, by_rows, sums, options
        self._tokens = tokens
        self._float_type = keras.keras.backend.floatx()
        self._probe = as_tensors(probe, self._float_type)
        self._own = OwnSteps(keras, model)
        self._evaluates = validates or not self._own.trains
        """Whether micro-batches can be evaluated. A model with a train_step of its own may have no other way."""
        if self._evaluates and not (self._own.trains and self._own.tests):
            _build(keras, model, self._probe)
        self._own.build(self._probe)
        keras.build_optimizer(model.optimizer, model.trainable_variables)
        self._variables = Variables(keras, model)
        if not self._variables.trainable:
            raise UsageError("model: got a model without trainable weights, takes one that has some")
        self.dtype = flat_dtype(variable.dtype.name for variable in self._variables.weights)
        """Dtype of flat vectors, local and reduced."""
        self._type = tf.as_dtype(type_name(self.dtype))
        self._runs = gradients.runs_of(sizes_of(self._variables.trainable))
        self._metrics = Metrics(keras, model, self._variables, self._own, self._type)
        self.width = 2 + self._metrics.width + (tokens is not None)
        self._rescaling = Rescaling(keras, model.optimizer)
        self.optimizer_name = type(model.optimizer).__qualname__
        self._passes = Passes(keras, model, self._variables, self._own, self._type, jit=options.compile, sums=sums)
        self._settings = self._constants()
        """As the present graphs of steps have them."""
        self._details: dict[str, float] = {}
        self._committing: dict[Averages | None, tuple[Any, list[Any]]] = {}
        """The graphs of an optimizer's step, and the variables that each writes."""
        self._left_out = False
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

    def loss(self, sums: Sequence[float]) -> float:
        return sums[1] / ((sums[0] if self._tokens is None else sums[-1]) or 1.0)

    def values(self, sums: Sequence[float]) -> dict[str, float]:
        return {"loss": self.loss(sums), **self._metrics.values(sums[2 : 2 + self._metrics.width])}

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────────────
    def warm_up(self, batch: Any) -> None:
        """Trace and run everything that a training does, so that a joining engine's first step takes no longer."""
        kept = [(variable, variable.read_value()) for variable in self._variables.everything]
        flat = torch.empty(self.size(StepKind.TRAIN), dtype=self.dtype)
        while True:
            try:
                self.micro_batch(batch, 1, 1, 0, flat)
                self.apply(flat)
                if self._evaluates:
                    self.evaluate(batch, 1, 0, flat[-self.width :])
                self.values(self.sums(StepKind.VALIDATE, flat))
                break
            except tf.errors.UnimplementedError as error:
                if not lacks_determinism(error):
                    raise
                give_up_determinism()
                self.end_guarantee(op_that_raised(error), "has no deterministic implementation on this device")
            except _NOT_COMPILED as error:
                if not self._options.compile:
                    raise
                raise UsageError(
                    f"compile: got True, takes False: XLA cannot compile this model here ({op_that_raised(error)})"
                ) from error
            finally:
                for variable, value in kept:
                    variable.assign(value)
        self._own_steps, self._details = None, {}

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        self.stream(batch, count, total, seed, Sink(local, adds=False))

    def stream(self, batch: Any, count: int, total: int, seed: int, sink: Sink) -> None:
        """The graph returns when all gradients are there. Their memory is then read once, by the sink."""
        seed_python(seed)
        training = self._training
        rows = as_tensors(batch, self._float_type)
        chosen = training.of(rows)
        first = training.first
        if [*map(id, first.floats + first.integers)] != [*map(id, chosen.floats + chosen.integers)]:
            raise RunnerError("the model writes other variables for a batch of other shapes than the first sample's")
        share, count = self._weights(rows, count, total)
        with clock.within(Phase.FORWARD):  # and backward: both are one graph
            computed, tail = self._run(chosen, rows, share, count, seed)
        crash_point(CrashPoint.ENGINE_BACKWARD, at=context.page.offset, who=context.page.engine)
        with clock.within(Phase.COPIES):
            gradients.put(sink, computed, self._runs, chosen.present, 1.0 if self._sums else share)
            rest = torch.empty(self.size(StepKind.TRAIN) - self.gradient_size, dtype=self.dtype)
            self._write_tail(rest, tail, batch)
            if sum(self.layout.integers):
                self._own_steps = self.layout.rest(rest).integers.clone()
            sink.put(self.gradient_size, rest)

    def evaluate(self, batch: Any, count: int, seed: int, local: Tensor) -> None:
        seed_python(seed)
        rows = as_tensors(batch, self._float_type)
        _, tail = self._run(self._evaluation.of(rows), rows, 1.0, self._weights(rows, count, count)[1], seed)
        self._write_tail(local, tail, batch)

    def _write_tail(self, place: Tensor, tail: Any, batch: Any) -> None:
        """Write what a pass returns beside gradients, and the number of tokens behind it."""
        if self._tokens is not None:
            place[-1] = self._tokens(batch)
            place = place[:-1]
        place.copy_(to_torch(tail))

    def apply(self, reduced: Tensor) -> bool:
        with clock.within(Phase.APPLY):
            commit, written = self._committing.get(self._rescaling.averages) or self._trace_commit()
            flat = self.layout.sections(reduced)
            if (
                self._own_steps is not None
                and flat.active
                and not torch.equal(self._own_steps * flat.active, flat.integers)
            ):
                names = ", ".join(map(_name, self._training.first.integers))
                self.end_guarantee(names, "an integer variable that micro-batches move differently")
            # A GPU may still read this memory when the next reduction writes to it.
            vector = reduced.clone() if FRAMEWORK.gpus() else reduced
            gradients.apply(commit, vector, self._limits(flat), written)
        return True

    def _limits(self, flat: Sections) -> tuple[Any, Any, Any]:
        """How the coming step changes the reduced gradient, whose bits are the same in every engine.

        Returns:
            The factor on it, the most absolute value of its numbers, and whether the step is taken at all. A step is
            left out if its gradient has overflowed, which the optimizer notices, too.
        """
        optimizer, options = self.model.optimizer, self._options
        scale, rate = self.gradient_scale, None
        if options.lr_scheduler is not None or self._keras.has_schedule(inner_optimizer(optimizer)):
            rate = self.learning_rate
        taken = not self._absorbs or is_finite(flat.gradients)
        self._left_out = not taken
        self._details = {"loss_scale": scale} if self._keras.scales_loss(optimizer) else {}
        factor = 1.0
        if options.clip_grad_norm is not None and taken:
            norm = math.sqrt(squared_norm(flat.gradients)) / (self.gradient_weight(flat.sums.tolist()) or 1.0) / scale
            self._details["grad_norm"] = norm
            factor = min(1.0, options.clip_grad_norm / (norm + _EPSILON))
        if rate is not None:
            self._details["learning_rate"] = rate
        limit = math.inf if options.clip_grad_value is None else options.clip_grad_value * scale
        return tf.constant(factor, self._type), tf.constant(limit, self._type), tf.constant(taken)

    def _trace_commit(self) -> tuple[Any, list[Any]]:
        spec, number = tf.TensorSpec([self.size(StepKind.TRAIN)], self._type), tf.TensorSpec([], self._type)
        with self._rescaling.tracing():
            made = tf.function(self._commit, autograph=False)
            commit = made.get_concrete_function(spec, number, number, tf.TensorSpec([], tf.bool))
        own = {id(variable) for variable in self._variables.everything}
        written = effects_of(commit).written
        for variable in written:
            if id(variable) not in own:
                self.end_guarantee(_name(variable), "a variable that the optimizer writes and does not list")
        self._committing[self._rescaling.averages] = commit, written
        return commit, written

    def _commit(self, reduced: Any, factor: Any, limit: Any, taken: Any) -> None:
        """Take one optimizer step, and commit what the forward passes moved. For the arguments, see ``_limits``."""
        passed, trainable = self._training.first, self._variables.trainable
        rest = tf.slice(reduced, [self.gradient_size], [-1])
        _, floats, changed, integers, active, sums = tf.split(rest, list(self.layout.sizes)[1:])
        rows = tf.maximum(sums[0], 1.0)
        if self._by_rows:
            floats = floats / rows

        def change(gradient: Any) -> Any:
            if self._by_rows and not self._sums:
                gradient = gradient / rows
            if self._tokens is not None:
                gradient = tf.math.divide_no_nan(gradient, sums[-1])
            if self._options.clip_grad_norm is not None:
                gradient = gradient * factor
            if self._options.clip_grad_value is not None:
                gradient = tf.clip_by_value(gradient, -limit, limit)
            return gradient

        for index, (variable, part) in enumerate(zip(passed.floats, parts_of(floats, passed.floats), strict=True)):
            variable.assign(tf.where(tf.logical_and(taken, changed[index] > 0), part, variable.read_value()))
        steps = tf.round(integers / tf.maximum(active, 1.0))
        for variable, part in zip(passed.integers, parts_of(steps, passed.integers, tf.int64), strict=True):
            moved = tf.cast(tf.cast(variable.read_value(), tf.int64) + part, variable.dtype)
            variable.assign(tf.where(taken, moved, variable.read_value()))
        parts = gradients.divided(reduced, trainable, change)
        pairs = zip(parts, self.model.trainable_variables, passed.used, strict=True)
        chosen = [(gradient, variable) for gradient, variable, used in pairs if used]
        self._keras.apply(self.model.optimizer, [gradient for gradient, _ in chosen], [v for _, v in chosen])

    @property
    def has_betas(self) -> bool:
        return self._rescaling.has_betas

    @property
    def gradient_scale(self) -> float:
        return self._keras.loss_scale(self.model.optimizer)

    def absorbs(self, reduced: Tensor) -> bool:
        return self._absorbs

    @property
    def left_out(self) -> bool:
        return self._left_out

    @property
    def _absorbs(self) -> bool:
        """With a scale of 1, it is not the scale that is too large."""
        return self._keras.leaves_out_overflows(self.model.optimizer) and self.gradient_scale > 1.0

    @property
    def learning_rate(self) -> float | None:
        return float(self._keras.learning_rate(inner_optimizer(self.model.optimizer)))

    def details(self) -> dict[str, float]:
        return dict(self._details)

    def is_finite(self) -> bool:
        return all(bool(tf.reduce_all(tf.math.is_finite(each))) for each in self._variables.trainable)

    def gradient_weight(self, sums: Sequence[float]) -> float | None:
        if self._tokens is not None:
            return sums[-1]
        return sums[0] if self._by_rows and not self._sums else None

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
            self._settings = self._constants()
            self._committing.clear()
        return places

    def end_import(self) -> None:
        self._variables.end_import()

    def recommit(self) -> None:
        self._variables.rest()
        settings = self._constants()
        if settings != self._settings:  # a hook has changed one, which the graphs of steps hold as a constant
            self._settings = settings
            self._committing.clear()

    def _constants(self) -> dict[str, Any]:
        """Settings of the optimizer that graphs of steps hold as constants: all but a learning rate in a variable."""
        found = self._variables.settings()
        scheduled = self._keras.has_schedule(inner_optimizer(self.model.optimizer))
        return found if scheduled else {name: value for name, value in found.items() if name != "learning_rate"}

    def save_for_user(self, folder: Path, name: str) -> None:
        """Write the user's files. The final files hold the weights as at the end of ``fit``; this process keeps the
        training's weights."""
        if name != _FINAL:
            save(self._keras, self.model, folder, name, serving=False)
            return
        kept = [(variable, variable.read_value()) for variable in self._variables.trainable]
        self._keras.finish(self.model)
        try:
            save(self._keras, self.model, folder, name, serving=True)
        finally:
            for variable, value in kept:
                variable.assign(value)


def _build(keras: KerasVersion, model: Any, probe: Any) -> None:
    """Create the variables of layers, loss and metrics, by one evaluation of the probe."""
    x, y, weights = (*probe, None, None)[:3]
    outputs = keras.call(model, x, training=False)
    keras.compute_loss(model, x, y, outputs, weights, training=False)
    model.compute_metrics(x, y, outputs, weights)
    model.reset_metrics()


def _name(variable: Any) -> str:
    return str(variable.name).partition(":")[0]
