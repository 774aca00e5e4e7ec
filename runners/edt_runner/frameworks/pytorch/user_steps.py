"""A model whose micro-batches are computed by functions of the user: WMLA's ``fn_step_train`` and ``fn_test``.

The user's function computes loss and gradients of one micro-batch. ``TorchAdapter`` does everything else: it weights
the gradients, the engines add them up, and every engine takes the same step. So the bits are those of a training
without such a function, if the function computes the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edt_runner.errors import UsageError
from edt_runner.frameworks.pytorch.adapter import Metric, TorchAdapter
from edt_runner.frameworks.pytorch.trainable import TorchTrainable
from edt_runner.frameworks.trainable import Collate, Samples

ACCURACY = "accuracy"
"""Name of the one metric of such a training."""
_PERCENT = 100.0


@dataclass
class UserSteps:
    """The user's functions, and what they may ask about the training set."""

    train: Callable[..., Any] | None
    """(model, data, eva, train_loader, fn_args) -> (accuracy in percent, loss); None: the adapter's own step."""
    test: Callable[..., Any] | None
    """(model, test_iter, fn_args) -> mean loss; None: the adapter's own evaluation."""
    accuracy: Metric
    """(outputs, targets) -> share of right ones."""
    batch_size: int = 1
    """Samples of a full micro-batch; ``train()`` sets it."""
    train_set: Any = ()
    """The training set, once it is known."""


class StepModel:
    """The model as the user's function sees it. It is called as the model, and has the model's other attributes."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, loss_function: Callable[..., Any]) -> None:
        self._model, self._optimizer, self._loss_function = model, optimizer, loss_function
        self.outputs: list[Any] = []
        """What the model has returned, newest last; the adapter clears it."""

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        self.outputs.append(self._model(*inputs, **named))
        return self.outputs[-1]

    def __getattr__(self, name: str) -> Any:
        if name == "_model":  # copy.deepcopy asks an object for attributes before it has any
            raise AttributeError(name)
        return getattr(self._model, name)

    def get_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer that the user gave. The platform takes its steps."""
        return self._optimizer

    def get_loss_function(self) -> Callable[..., Any]:
        """The loss function that the user gave."""
        return self._loss_function


class TrainLoader:
    """What the user's function gets as ``train_loader``: the training set, and how many micro-batches it makes.

    It gives no batches. The engines share them, and each call of the function gets its own as ``data``.
    """

    def __init__(self, steps: UserSteps) -> None:
        self.dataset, self.batch_size = steps.train_set, steps.batch_size

    def __len__(self) -> int:
        return math.ceil(len(self.dataset) / self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        raise UsageError("fn_step_train: iterates over train_loader, takes the micro-batch that it gets as data")


class OneBatch:
    """What the user's function gets as ``test_iter``: an iterable and an iterator of one (inputs, targets)."""

    def __init__(self, batch: tuple[Any, Any]) -> None:
        self._left = [batch]

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> OneBatch:
        return self

    def __next__(self) -> tuple[Any, Any]:
        if not self._left:
            raise StopIteration
        return self._left.pop()


class UserStepsAdapter(TorchAdapter):
    """A ``TorchAdapter`` whose micro-batches are computed by the user's functions.

    Args:
        trainable: the model, its optimizer and the functions.
        device: where the model computes.
    """

    def __init__(self, trainable: UserStepsTrainable, device: torch.device) -> None:
        super().__init__(trainable.model, trainable.optimizer, trainable.loss_function, trainable.metrics, device)
        self._steps = trainable.steps
        self._seen = StepModel(self.model, self.optimizer, trainable.loss_function)

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, local: Tensor) -> None:
        if self._steps.train is None:
            super().micro_batch(batch, count, total, seed, local)
            return
        self.prepare(seed)
        with self.optimizer.register_step_pre_hook(_refuse_step):
            returned = self._steps.train(self._seen, self._to_device(batch), self._eva, TrainLoader(self._steps), {})
        self._seen.outputs.clear()
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise UsageError(f"fn_step_train: returned {type(returned).__name__}, takes a pair (accuracy, loss)")
        accuracy, loss = returned
        self.write_gradients(local, count, total)
        self._write_values(local[-self.width :], count, loss, _number(accuracy) / _PERCENT)

    def evaluate(self, batch: Any, count: int, seed: int, local: Tensor) -> None:
        if self._steps.test is None:
            super().evaluate(batch, count, seed, local)
            return
        self.prepare(seed)
        self.model.eval()
        with torch.no_grad():
            given = self._to_device(batch)
            loss = self._steps.test(self._seen, OneBatch(given), {})
            self._write_values(local, count, loss, self._accuracy(given[1]))
        self._seen.outputs.clear()
        self._buffers.restore()

    def _eva(self, outputs: Any, targets: Any) -> float:
        """The function's ``eva``: the share of right ones in percent."""
        with torch.no_grad():
            return _number(self._steps.accuracy(outputs, targets)) * _PERCENT

    def _accuracy(self, targets: Any) -> float:
        """Share of right ones in what the model returned in ``fn_test``; 0 if that was not one output per target."""
        outputs = self._seen.outputs
        if len(outputs) != 1 or not all(isinstance(each, Tensor) and each.dim() for each in (outputs[0], targets)):
            return 0.0
        return _number(self._steps.accuracy(outputs[0], targets)) if len(outputs[0]) == len(targets) else 0.0

    def _write_values(self, place: Tensor, count: int, loss: Any, accuracy: float) -> None:
        place[0] = count
        place[1] = _number(loss) * count
        place[2] = accuracy * count


@dataclass(frozen=True)
class UserStepsTrainable(TorchTrainable):
    """``TorchTrainable`` with functions of the user for the micro-batches. ``metrics`` holds the accuracy alone."""

    steps: UserSteps

    def samples(self, train: Any, test: Any, seed: int, collate: Collate | None) -> Samples:
        self.steps.train_set = train
        return super().samples(train, test, seed, collate)

    def adapter_on(self, device: torch.device) -> UserStepsAdapter:
        return UserStepsAdapter(self, device)


def _refuse_step(*ignored: Any) -> None:
    raise UsageError(
        "fn_step_train: calls optimizer.step(), takes zero_grad(), forward and backward pass alone: the platform takes "
        "the step, with the gradients of all micro-batches"
    )


def _number(value: Any) -> float:
    return 0.0 if value is None else float(value.detach() if isinstance(value, Tensor) else value)
