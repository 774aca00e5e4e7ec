"""The user's request to ``train()``, and one training as a process sees it: the request, the data and the schedule.

Everything that depends on a framework is behind ``frameworks.trainable.Trainable``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edt_runner import context, environment
from edt_runner.callbacks.hooks import UserCallback, UserCallbacks
from edt_runner.callbacks.watching import KeepBest, Watched
from edt_runner.errors import UsageError
from edt_runner.frameworks.carrying import carrying
from edt_runner.frameworks.finite import judging
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.trainable import Collate, EngineAdapter, Samples, Trainable, scaled
from edt_runner.loader import SampleLoader
from edt_runner.loggers import Logger
from edt_runner.lr_scaling import emulation
from edt_runner.lr_scaling.rules import Rule, described
from edt_runner.schedule import Schedule, Step, Widths


@dataclass(frozen=True)
class TrainRequest:
    """All arguments that the user gave to the constructor and to train(). The caller has checked them."""

    trainable: Trainable
    datasets_function: Callable[[], tuple[Any, Any]]
    worker_logger: Logger | None
    driver_logger: Logger | None
    collate: Collate | None
    epochs: int
    batch_size: int
    """Number of samples of a micro-batch."""
    micro_batches: int | None
    """E; None: the number of slots that the job may hold."""
    loader_processes: int
    validation_freq: int
    checkpoint_freq: int
    seed: int | None
    """The seed of the training; None: the job's seed."""
    exact: bool
    """Whether gradients are added in an order that does not depend on the number of engines."""
    recovery_interval: float = 10.0
    """Seconds between recovery checkpoints."""
    callbacks: Sequence[UserCallback] = ()
    step_samples: int | None = None
    """Number of samples of a full step, if it is not E x ``batch_size``; None: it is."""
    shuffle: bool = True
    observe_step: Callable[[Step, int, int, bool], None] | None = None
    """Engines call this before each try of a training step, with the step, the number of engines that share it, the
    number of this engine's micro-batches, and whether this engine is the first in rank order."""
    batch_scaling: str = "fixed"
    """"fixed": each training step has E micro-batches; "per_engine": it has one micro-batch for each engine."""
    lr_rule: Rule | None = None
    """The rule by which the learning rate follows the global batch; None: it does not follow."""
    reference_batch: int = 0
    """Number of samples of the global batch for which the learning rate was chosen; 0: E x ``batch_size``."""
    compare_interval: int | None = None
    """Training steps between two comparisons of the engines' replicas; None: at each epoch's end; 0: no comparisons."""
    audit_interval: int | None = None
    """Training steps between two audits, in which a second engine computes one micro-batch; None: once a minute; 0: no
    audits."""
    on_mismatch: str = "mark"
    """What happens if replicas differ: "mark", "stop" or "restore"."""
    require_exact: bool = False
    """Whether the training fails as soon as its result is no longer exact. Engines with other hardware or libraries
    than the first engine cannot join then."""
    options: StepOptions = field(default_factory=StepOptions)
    """What the user asks of passes and of the optimizer's steps."""
    on_nonfinite: str = "stop"
    """What happens if a step's loss or gradient is infinite or NaN: "stop", "skip" or "continue"."""
    watched: Sequence[UserCallback] = ()
    """Callbacks of the platform that watch metrics, such as early stopping. They run before the user's."""
    keep_last: int | None = None
    """How many of the user's files of epochs are kept; None: all."""
    notes: Sequence[str] = ()
    """What the user should know about arguments that have no effect; the driver prints it."""

    @property
    def follows_engines(self) -> bool:
        """Whether the global batch grows and shrinks with the number of engines."""
        return self.batch_scaling == "per_engine"


@dataclass
class Training:
    """One training as a process sees it. The driver and each engine make their own; the coordinator compares the facts
    that must be equal in all of them.

    Args:
        request: the user's request. Under ``edt emulate`` it is replaced by the request of the emulated training.
        offered: the largest number of slots that the job may hold.
        seed: seed of the training.

    Raises:
        UsageError: the data set is empty, or ``datasets_function`` does not return a pair.
    """

    request: TrainRequest
    offered: int
    seed: int
    samples: Samples = field(init=False)
    schedule: Schedule = field(init=False)
    widths: Widths = field(init=False)

    def __post_init__(self) -> None:
        emulated = emulation.current()
        if emulated is not None:
            self.request = _under(self.request, emulated)
        request = self.request
        self.samples = request.trainable.samples(*_pair(request.datasets_function()), self.seed, request.collate)
        if not self.samples.train_units:
            raise UsageError("datasets_function: the train data set is empty, takes at least one sample")
        batch_size = self.samples.units_per_batch(request.batch_size)  # may cut the data into other units
        self.schedule = Schedule(
            train_samples=self.samples.train_units,
            test_samples=self.samples.test_units,
            micro_batches=1 if request.follows_engines else request.micro_batches or self.offered,
            batch_size=batch_size,
            epochs=request.epochs,
            validation_freq=request.validation_freq,
            step_samples=request.step_samples or 0,
            shuffled=request.shuffle and self.samples.shuffled,
            follows_engines=request.follows_engines,
        )
        self._check_validated()
        if emulated is not None:
            self.widths = Widths(emulated.changes(request.reference_batch, request.batch_size))
        else:
            self.widths = Widths(() if request.follows_engines else ((0, self.schedule.micro_batches),))

    @property
    def engines(self) -> int:
        """The largest number of engines that can share a step. It is E. If the batch follows the engines, it is the
        number of micro-batches of an epoch, or the largest width of an emulation if that is less."""
        if not self.request.follows_engines:
            return self.schedule.micro_batches
        most = self.schedule.steps_per_epoch  # an epoch's micro-batches; the number of slots is a separate limit
        return min(most, self.widths.most or most)

    def adapter(self, *, on_device: bool) -> EngineAdapter:
        """Make the adapter of this process's model, with the learning-rate rule if there is one. It judges whether
        steps are finite, as the user asks.

        Args:
            on_device: whether the model is moved to this process's GPU, if the process has one.
        """
        request = self.request
        adapter = request.trainable.adapter(self.samples, on_device=on_device, options=request.options)
        if request.lr_rule is not None:
            units = self.schedule.batch_size
            adapter = scaled(
                adapter,
                request.lr_rule,
                reference=self.reference,
                micro_batch=request.batch_size,
                epoch_samples=self.schedule.train_samples * request.batch_size // units,
            )
        return judging(adapter, request.on_nonfinite)

    @property
    def best(self) -> Watched | None:
        """What is known of the best epoch so far, if its files are kept."""
        return next((watcher.inner for watcher in self.request.watched if isinstance(watcher, KeepBest)), None)

    @property
    def reference(self) -> int:
        """Number of samples of the global batch for which the learning rate was chosen."""
        return self.request.reference_batch or self.request.batch_size * self.schedule.micro_batches

    def with_callbacks(self, adapter: EngineAdapter, *, runs: bool) -> tuple[EngineAdapter, UserCallbacks | None]:
        """Extend the adapter's state by the state of the user's callbacks.

        Args:
            adapter: the adapter of this process's model.
            runs: whether this process runs the callbacks; only engines do.

        Returns:
            The extended adapter, and the callbacks; None in place of these if there are none or this process does not
            run them.
        """
        request, trainable = self.request, self.request.trainable
        callbacks = [*self._own_callbacks(), *request.callbacks]
        if not callbacks:
            return adapter, None
        if not runs:
            return carrying(adapter, None), None
        hooks = UserCallbacks(
            callbacks,
            trainable.model,
            trainable.optimizer,
            [*trainable.parts(), *adapter.carried()],
            epochs=self.schedule.epochs,
            steps=self.schedule.steps_per_epoch,
            seed=self.seed,
            seed_framework=trainable.framework.seed,
            ran=adapter.recommit,
        )
        return carrying(adapter, hooks), hooks

    def warm_up_sizes(self) -> list[int]:
        """Return the numbers of samples of the micro-batches that an engine computes before it joins.

        One small micro-batch will do, unless the model is compiled, which takes long for each size.
        """
        schedule = self.schedule
        if not self.request.options.compile:
            return [min(2, schedule.batch_size)]
        last = schedule.test_samples % schedule.batch_size
        sizes = {*schedule.step_sizes(0), *schedule.step_sizes(schedule.steps_per_epoch - 1)}
        return sorted(sizes | ({schedule.batch_size, last} if schedule.test_samples else set()) - {0})

    def _own_callbacks(self) -> list[UserCallback]:
        """The platform's callbacks, which run before the user's."""
        return [*self.request.trainable.epoch_callbacks(self.request.options), *self.request.watched]

    def _check_validated(self) -> None:
        """Check that metrics of validations are only asked for if there are validations.

        Raises:
            UsageError: a callback of the platform needs one, and there is none.
        """
        for callback in self._own_callbacks():
            metric = getattr(callback, "needs", None)
            if metric is not None and metric.startswith("val_") and not self.schedule.validates:
                raise UsageError(
                    f"datasets_function: {callback} needs {metric}, but the training has no validation; takes a test "
                    "data set and a validation_freq of 1 or more, or a metric of the training, such as "
                    f"{metric.removeprefix('val_')!r}"
                )

    def loader(self, processes: int) -> SampleLoader:
        return SampleLoader(self.samples, processes)

    def identity(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the facts that must be equal in a checkpoint and in this training, so that the training can resume
        from it. The keys are names that the user sees.

        Args:
            arguments: arguments of the user's script.
        """
        trainable, schedule = self.request.trainable, self.schedule.to_json_object()
        del schedule["follows_engines"]
        widths = [list(change) for change in self.widths.changes] if self.request.follows_engines else []
        return {
            "batch_scaling": self.request.batch_scaling,
            "emulated widths": widths or None,
            **schedule,
            "seed": self.seed,
            "reduction": "exact" if self.request.exact else "fast",
            "arguments": list(arguments),
            "optimizer": type(trainable.optimizer).__qualname__,
            "lr_rule": self.request.lr_rule and described(self.request.lr_rule, self.reference),
            "user_callback": [
                *map(_described, self._own_callbacks()),
                *(type(callback.inner).__qualname__ for callback in self.request.callbacks),
            ],
            "parameters": fingerprint(trainable.parameters()),
            **self.facts(),
        }

    def facts(self) -> dict[str, Any]:
        """Return the facts that must be equal in all processes: the lengths of the data sets, and a digest of the first
        training sample."""
        return {
            "training samples": self.schedule.train_samples,
            "test samples": self.schedule.test_samples,
            "first training sample": fingerprint(self.samples.probe()),
        }


def _described(callback: UserCallback) -> str:
    """A callback of the platform, in words that are the same in every process."""
    has_words = type(callback).__str__ is not object.__str__
    return str(callback) if has_words else type(callback).__qualname__


def seed_of(request: TrainRequest, process: context.Context | None) -> int:
    """Return the seed that the user has chosen, or else the job's seed.

    Args:
        request: the user's request.
        process: context of the driver or the engine; None: the script runs without a platform, and EDT_SEED is the
            job's seed.
    """
    if request.seed is not None:
        return request.seed
    return process.spec.seed if process is not None else environment.seed()


def _under(request: TrainRequest, emulated: emulation.Emulation) -> TrainRequest:
    """Return the request of the emulated training."""
    return replace(
        request,
        batch_scaling="per_engine",
        lr_rule=emulated.rule(request.lr_rule),
        reference_batch=request.reference_batch or request.batch_size * (request.micro_batches or 1),
        step_samples=None,
    )


def model_dir(result_dir: str) -> Path:
    """Return the folder for the user's files: ``$SAVED_MODEL_DIR/train`` as in WMLA, or ``model/train`` in the result
    folder."""
    return Path(os.environ.get("SAVED_MODEL_DIR") or Path(result_dir) / "model") / "train"


def fingerprint(value: Any) -> str:
    """Return a digest (16 hexadecimal digits) of a sample: of all values in its tensors, arrays and containers."""
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()[:16]


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().float().numpy() if value.is_floating_point() else value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        digest.update(f"{value.dtype}{value.shape}".encode())
        # an array of objects contains their addresses
        digest.update(repr(value.tolist()).encode() if value.dtype.hasobject else np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            digest.update(str(key).encode())
            _feed(digest, value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(digest, item)
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            digest.update(part.name.encode())
            _feed(digest, getattr(value, part.name))
    elif isinstance(value, bool | int | float | str | bytes | None):
        digest.update(repr(value).encode())
    else:
        digest.update(type(value).__qualname__.encode())  # another object: its contents cannot be compared


def _pair(found: Any) -> tuple[Any, Any]:
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise UsageError(f"datasets_function: returned {type(found).__name__}, takes a pair (train, test)")
    return found[0], found[1]
