"""The forward pass and the loss of one micro-batch: the platform's own, or functions of the user.

``training_step`` and ``validation_step`` return a loss, and perhaps metrics by name. ``fn_step_train`` and ``fn_test``
are WMLA's form of them: the first calls ``backward()`` itself and returns (accuracy in percent, loss), the second gets
an iterator and returns a loss. In all cases ``TorchAdapter`` weights the gradients, the engines add them up, and every
engine takes the same step. So the bits are those of a training without such a function, if the function computes the
same.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edt_runner.errors import UsageError
from edt_runner.frameworks.computing import Asked
from edt_runner.frameworks.pytorch.batches import call_of, outputs_of, own_loss
from edt_runner.frameworks.pytorch.metrics import top1_accuracy

ACCURACY = "accuracy"
"""Name of the one metric of WMLA's functions."""
_PERCENT = 100.0


@dataclass(frozen=True)
class Computed:
    """What a pass has computed.

    Args:
        loss: a scalar tensor, or a number. If it has a graph, ``backward()`` is still to be called.
        told: metrics by name, means over the micro-batch; None: they are computed from ``outputs`` and ``targets``.
        outputs, targets: what metrics are computed from.
    """

    loss: Any
    told: Mapping[str, Any] | None = None
    outputs: Any = None
    targets: Any = None


@dataclass
class TrainSet:
    """What WMLA's functions may ask about the training set."""

    batch_size: int = 1
    """Samples of a full micro-batch."""
    dataset: Any = ()


class Passes:
    """The passes of a training.

    Args:
        model: the user's model.
        optimizers: the user's optimizers.
        asked: how loss and metrics are computed.
        train_set: what is known of the training set; it may be completed until the first pass.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        asked: Asked,
        train_set: TrainSet | None = None,
    ) -> None:
        self._model, self._optimizers, self._asked = model, optimizers, asked
        self._train_set = train_set or TrainSet()
        self._seen = StepModel(model, optimizers, asked.loss_function)
        self.calls: Callable[..., Any] = model
        """What is called in the model's place: the model, or what ``torch.compile`` has made of it."""

    @property
    def tells(self) -> bool:
        """Whether a function of the user may return metrics, whose names are only known when it has run."""
        return self._asked.training_step is not None or self._asked.validation_step is not None

    @property
    def validates_alike(self) -> bool:
        """Whether the user's ``training_step`` is also what validates."""
        return self._asked.validation_step is None and self._asked.fn_test is None

    def train(self, batch: Any) -> Computed:
        """Run the pass of a training step. The model is in training mode."""
        asked = self._asked
        if asked.training_step is not None:
            with self._no_step("training_step"):
                return _told("training_step", asked.training_step(self.calls, batch))
        if asked.fn_step_train is not None:
            with self._no_step("fn_step_train"):
                return self._wmla_train(asked.fn_step_train, batch)
        return self._plain(batch)

    def validate(self, batch: Any) -> Computed:
        """Run the pass of an evaluation step. The model is in evaluation mode, and there are no gradients."""
        asked = self._asked
        if asked.validation_step is not None:
            return _told("validation_step", asked.validation_step(self.calls, batch))
        if asked.fn_test is not None:
            return self._wmla_test(asked.fn_test, batch)
        if asked.training_step is not None:
            try:
                return _told("training_step", asked.training_step(self.calls, batch))
            except RuntimeError as error:
                if "does not require grad" not in str(error):
                    raise
                raise UsageError(
                    "validation_step: got None with a training_step that calls backward() itself, takes a function "
                    "(model, batch) -> loss that computes the loss alone"
                ) from error
        return self._plain(batch)

    def _plain(self, batch: Any) -> Computed:
        loss_function = self._asked.loss_function
        call = call_of(self._model, batch, keeps_targets=loss_function is None)
        returned = self.calls(*call.positional, **call.named)
        if loss_function is None:
            return Computed(own_loss(returned), None, outputs_of(returned), call.targets)
        if call.targets is None:
            raise UsageError(
                "datasets_function: a batch has no targets for loss_function; takes pairs (inputs, targets), a batch "
                "by names with 'labels', a model that returns its own loss (loss_function=None), or a training_step"
            )
        outputs = outputs_of(returned)
        return Computed(loss_function(outputs, call.targets), None, outputs, call.targets)

    @contextlib.contextmanager
    def _no_step(self, name: str) -> Iterator[None]:
        """A context in which the user's function must not take a step."""

        def refuse(*ignored: Any) -> None:
            raise UsageError(
                f"{name}: calls optimizer.step(), takes forward and backward pass alone: the platform takes the step, "
                "with the gradients of all micro-batches"
            )

        hooks = [optimizer.register_step_pre_hook(refuse) for optimizer in self._optimizers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    # ── WMLA's functions ──────────────────────────────────────────────────────────────────────────────────────
    def _wmla_train(self, function: Callable[..., Any], batch: Any) -> Computed:
        self._seen.calls = self.calls
        loader = TrainLoader(self._train_set.dataset, self._train_set.batch_size)
        returned = function(self._seen, batch, _percent_of_right, loader, {})
        self._seen.outputs.clear()
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise UsageError(f"fn_step_train: returned {type(returned).__name__}, takes a pair (accuracy, loss)")
        accuracy, loss = returned
        return Computed(_number(loss), {ACCURACY: _number(accuracy) / _PERCENT})

    def _wmla_test(self, function: Callable[..., Any], batch: Any) -> Computed:
        self._seen.calls = self.calls
        loss = function(self._seen, OneBatch(batch), {})
        accuracy = self._seen.accuracy(call_of(self._model, batch, keeps_targets=False).targets)
        self._seen.outputs.clear()
        return Computed(_number(loss), {ACCURACY: accuracy})


def _told(name: str, returned: Any) -> Computed:
    """What a function of the user has returned: a loss, or a mapping with "loss" and metrics."""
    found = returned
    told: Mapping[str, Any] = {}
    if isinstance(returned, Mapping):
        found = returned.get("loss")
        told = {key: value for key, value in returned.items() if key != "loss"}
    if not isinstance(found, Tensor | float | int) or (isinstance(found, Tensor) and found.numel() != 1):
        raise UsageError(
            f"{name}: returned {_kind(returned)}, takes a scalar loss, or a dict with 'loss' and metrics that are "
            "means over the micro-batch"
        )
    return Computed(found, told)


def _kind(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return (
        f"a dict of {', '.join(map(str, value)) or 'nothing'}" if isinstance(value, Mapping) else type(value).__name__
    )


class StepModel:
    """The model as WMLA's functions see it. It is called as the model, and has the model's other attributes."""

    def __init__(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], loss_function: Callable[..., Any]
    ) -> None:
        self._model, self._optimizers, self._loss_function = model, optimizers, loss_function
        self.calls: Callable[..., Any] = model
        self.outputs: list[Any] = []
        """What the model has returned, newest last."""

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        self.outputs.append(self.calls(*inputs, **named))
        return self.outputs[-1]

    def __getattr__(self, name: str) -> Any:
        if name == "_model":  # copy.deepcopy asks an object for attributes before it has any
            raise AttributeError(name)
        return getattr(self._model, name)

    def get_optimizer(self) -> Any:
        """The optimizer that the user gave, or the list of them. The platform takes its steps."""
        return self._optimizers[0] if len(self._optimizers) == 1 else list(self._optimizers)

    def get_loss_function(self) -> Callable[..., Any]:
        """The loss function that the user gave."""
        return self._loss_function

    def accuracy(self, targets: Any) -> float | None:
        """Share of right ones in what the model has returned; None if that was not one output per target."""
        if len(self.outputs) != 1 or not all(
            isinstance(each, Tensor) and each.dim() for each in (self.outputs[0], targets)
        ):
            return None
        outputs = self.outputs[0]
        found = top1_accuracy(outputs, targets) if len(outputs) == len(targets) else None
        return None if found is None else _number(found)


class TrainLoader:
    """What ``fn_step_train`` gets as ``train_loader``: the training set, and how many micro-batches it makes.

    It gives no batches. The engines share them, and each call of the function gets its own as ``data``.
    """

    def __init__(self, dataset: Any, batch_size: int) -> None:
        self.dataset, self.batch_size = dataset, batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.dataset) / self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        raise UsageError("fn_step_train: iterates over train_loader, takes the micro-batch that it gets as data")


class OneBatch:
    """What ``fn_test`` gets as ``test_iter``: an iterable and an iterator of one batch."""

    def __init__(self, batch: Any) -> None:
        self._left = [batch]

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> OneBatch:
        return self

    def __next__(self) -> Any:
        if not self._left:
            raise StopIteration
        return self._left.pop()


def _percent_of_right(outputs: Any, targets: Any) -> float:
    """The ``eva`` of ``fn_step_train``: the share of right ones in percent; 0 if the outputs are not class scores."""
    with torch.no_grad():
        return _number(top1_accuracy(outputs, targets)) * _PERCENT


def _number(value: Any) -> float:
    return 0.0 if value is None else float(value.detach() if isinstance(value, Tensor) else value)
