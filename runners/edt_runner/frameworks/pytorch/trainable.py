"""A PyTorch user's data sets, and model, loss, optimizer and metrics, which ``fabric_model`` has checked."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.data import TensorDataset, default_collate
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import worker

from edt_runner.errors import UsageError
from edt_runner.frameworks import Framework
from edt_runner.frameworks.pytorch import FRAMEWORK
from edt_runner.frameworks.pytorch.adapter import Metric, TorchAdapter
from edt_runner.frameworks.trainable import Collate, Samples
from edt_runner.seeds import sample_seed, seed_python


@dataclass(frozen=True)
class TorchTrainable:
    """A user's PyTorch training as a ``Trainable``; its fields are the arguments of ``TorchAdapter``."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss_function: Callable[[Any, Any], Any]
    metrics: Mapping[str, Metric]
    framework: ClassVar[Framework] = FRAMEWORK

    def parameters(self) -> list[list[Any]]:
        return [[name, str(p.dtype), list(p.shape)] for name, p in self.model.named_parameters()]

    def parts(self) -> list[Any]:
        model, optimizer = self.model, self.optimizer
        tensors = [*model.parameters(), *model.buffers()]
        return [model, optimizer, *optimizer.param_groups, *model.modules(), *tensors]

    def samples(self, train: Any, test: Any, seed: int, collate: Collate | None) -> Samples:
        return TorchSamples(train, test, seed, collate)

    def adapter(self, samples: Samples, *, on_device: bool) -> TorchAdapter:
        device = torch.device("cuda:0" if on_device and torch.cuda.is_available() else "cpu")
        adapter = self.adapter_on(device)
        if device.type == "cuda":
            _ask_for_determinism(adapter)
        return adapter

    def adapter_on(self, device: torch.device) -> TorchAdapter:
        return TorchAdapter(self.model, self.optimizer, self.loss_function, self.metrics, device)

    def finish(self) -> None:
        """Nothing to do: after its last step, a PyTorch user's own loop changes the model no more."""


def _ask_for_determinism(adapter: TorchAdapter) -> None:
    """Ask for deterministic algorithms on a GPU. The first op without one ends the exactness guarantee."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False  # with it each process would choose algorithms by its own timings
    warnings.filterwarnings("always", message=".*does not have a deterministic implementation.*")
    show = warnings.showwarning

    def showwarning(message: Warning | str, *rest: Any, **named: Any) -> None:
        text = str(message)
        if "does not have a deterministic implementation" in text:
            adapter.end_guarantee(text.split(maxsplit=1)[0], "has no deterministic implementation on this device")
        show(message, *rest, **named)

    warnings.showwarning = showwarning


class TorchSamples(Samples):
    """``Samples`` from map-style data sets.

    The random state under which a sample is loaded depends on (seed, epoch, index).

    Args:
        train, test: map-style data sets; test may be None.
        seed: the training's seed.
        collate: list of samples -> batch; None: torch's default.

    Raises:
        UsageError: a data set has no ``__getitem__`` or no ``__len__``.
    """

    def __init__(self, train: Any, test: Any, seed: int, collate: Collate | None) -> None:
        _check("train", train)
        if test is not None:
            _check("test", test)
        self._train, self._test, self._seed, self._collate = train, test, seed, collate or default_collate
        self._pure = {True: type(train) is TensorDataset, False: type(test) is TensorDataset}
        self.train_units = len(train)
        self.test_units = len(test) if test is not None else 0

    def batch(self, of_train: bool, epoch: int, indices: Sequence[int]) -> Any:
        """Load each sample under its own seed, then call the collate function under the first sample's seed."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as in a loader process: sums over several threads have other bits
        try:
            samples = [self._sample(of_train, epoch, index) for index in indices]
            if self._collate is not default_collate:
                self._seed_for(of_train, epoch, indices[0])
            return self._collate(samples)
        finally:
            torch.set_num_threads(threads)

    def probe(self) -> Any:
        return self._sample(True, 0, 0)

    def probe_batch(self, units: int) -> Any:
        return self._collate([self.probe()] * units)

    def enter_loader(self) -> None:
        """Use one thread, and stack tensors in memory as the engine does, not in a file on /dev/shm."""
        torch.set_num_threads(1)
        torch_collate.default_collate_fn_map[torch.Tensor] = _stacked

    def _sample(self, of_train: bool, epoch: int, index: int) -> Any:
        if not self._pure[of_train]:
            self._seed_for(of_train, epoch, index)
        return self._train[index] if of_train else self._test[index]

    def _seed_for(self, of_train: bool, epoch: int, index: int) -> None:
        seed = sample_seed(self._seed, epoch if of_train else -1, index)
        seed_python(seed)
        torch.default_generator.manual_seed(seed)  # samples are made on the host


def _check(name: str, dataset: Any) -> None:
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise UsageError(
            f"datasets_function: the {name} data set is a {type(dataset).__name__} without "
            "__getitem__ and __len__; takes a map-style data set"
        )


_stack: Callable[..., torch.Tensor] = torch_collate.collate_tensor_fn


def _stacked(batch: Sequence[torch.Tensor], **more: Any) -> torch.Tensor:
    """torch's own function, in a process that it takes for no loader process, so that it uses no shared memory."""
    known, worker._worker_info = worker._worker_info, None
    try:
        return _stack(batch, **more)
    finally:
        worker._worker_info = known
