"""A PyTorch user's data sets, and model, loss, optimizer and metrics, which ``fabric_model`` has checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import worker

from edt_runner.callbacks.hooks import UserCallback
from edt_runner.checkpoints.user_files import Copy
from edt_runner.errors import UsageError
from edt_runner.frameworks import Framework
from edt_runner.frameworks.computing import Asked
from edt_runner.frameworks.options import StepOptions
from edt_runner.frameworks.pytorch import FRAMEWORK, companions, compiling, files, schedules
from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.frameworks.pytorch.batches import stacked
from edt_runner.frameworks.pytorch.companions import Companions
from edt_runner.frameworks.pytorch.datasets import map_style
from edt_runner.frameworks.pytorch.determinism import determinism
from edt_runner.frameworks.pytorch.passes import TrainSet
from edt_runner.frameworks.trainable import Collate, EngineAdapter, Samples
from edt_runner.seeds import sample_seed, seed_python

_PLAIN = StepOptions()


@dataclass(frozen=True)
class TorchTrainable:
    """A user's PyTorch training as a ``Trainable``; its fields are arguments of ``TorchAdapter``."""

    model: nn.Module
    optimizers: tuple[torch.optim.Optimizer, ...]
    asked: Asked
    metrics: Mapping[str, Any]
    train_set: TrainSet = field(default_factory=TrainSet)
    framework: ClassVar[Framework] = FRAMEWORK

    @property
    def optimizer(self) -> Any:
        """The optimizer, or the list of them."""
        return self.optimizers[0] if len(self.optimizers) == 1 else list(self.optimizers)

    def parameters(self) -> list[list[Any]]:
        return [[name, str(p.dtype), list(p.shape)] for name, p in self.model.named_parameters()]

    def parts(self) -> list[Any]:
        model = self.model
        tensors = [*model.parameters(), *model.buffers()]
        groups = [part for optimizer in self.optimizers for part in (optimizer, *optimizer.param_groups)]
        return [model, *groups, *model.modules(), *tensors]

    def samples(self, train: Any, test: Any, seed: int, collate: Collate | None) -> Samples:
        return TorchSamples(train, test, seed, collate, self.train_set)

    def checked_options(self, options: StepOptions) -> StepOptions:
        """Check the options, and make the schedulers that are given as functions."""
        if options.compile:
            compiling.check()
        if options.precision == "fp16" and self.asked.fn_step_train is not None:
            raise UsageError(
                "precision: got 'fp16' with fn_step_train, which calls backward() itself, takes 'bf16' or 'fp32'"
            )
        found = schedules.resolved(options.lr_scheduler, self.optimizers, options.lr_scheduler_interval)
        return replace(options, lr_scheduler=found or None)

    def epoch_callbacks(self, options: StepOptions) -> Sequence[UserCallback]:
        return schedules.epoch_callbacks(options)

    def adapter(self, samples: Samples, *, on_device: bool, options: StepOptions = _PLAIN) -> TorchAdapter:
        device = torch.device("cuda:0" if on_device and torch.cuda.is_available() else "cpu")
        adapter = self.adapter_on(device, options)
        if device.type == "cuda":
            determinism.ask(adapter.end_guarantee)
        return adapter

    def adapter_on(self, device: torch.device, options: StepOptions = _PLAIN) -> TorchAdapter:
        return TorchAdapter(
            self.model,
            self.optimizers,
            self.asked,
            self.metrics,
            device,
            options,
            schedulers=(options.lr_scheduler or ()) if options.lr_scheduler_interval == "step" else (),
            companions=self.companions(options),
            train_set=self.train_set,
        )

    def companions(self, options: StepOptions) -> Companions:
        """Find what the training's state consists of beside the model and its optimizers."""
        parts = self.parts()
        return Companions(companions.found(self.optimizers, options.lr_scheduler or (), parts), parts)

    def exporter(self, adapter: EngineAdapter) -> Callable[[], Copy]:
        return files.exporter(self.model, self.optimizers)

    def finish(self) -> None:
        """Say which schedulers have never moved. A PyTorch user's own loop changes nothing after its last step."""
        schedules.remark_on_unmoved(self.optimizers)


class TorchSamples(Samples):
    """``Samples`` from map-style data sets.

    The random state under which a sample is loaded depends on (seed, epoch, index).

    Args:
        train, test: data sets in a form that ``datasets`` takes; test may be None.
        seed: the training's seed.
        collate: list of samples -> batch; None: torch's default, which here also stacks dataclasses.
        train_set: gets the number of samples of a micro-batch.

    Raises:
        UsageError: no index can be made of a data set.
    """

    def __init__(
        self, train: Any, test: Any, seed: int, collate: Collate | None, train_set: TrainSet | None = None
    ) -> None:
        self._train_set = train_set or TrainSet()
        found = map_style("train", train)
        tested = map_style("test", test) if test is not None else None
        self._train, self._test, self._seed = found.dataset, tested.dataset if tested else None, seed
        self._collates = {
            True: collate or found.collate or stacked,
            False: collate or (tested.collate if tested else None) or stacked,
        }
        self.shuffled = not (found.in_order and isinstance(train, DataLoader))
        self.notes = (*found.notes, *(tested.notes if tested else ()))
        self._pure = {True: type(self._train) is TensorDataset, False: type(self._test) is TensorDataset}
        self.train_units = len(self._train)
        self.test_units = len(self._test) if self._test is not None else 0
        self._train_set.dataset = self._train

    def batch(self, of_train: bool, epoch: int, indices: Sequence[int]) -> Any:
        """Load each sample under its own seed, then call the collate function under the first sample's seed."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as in a loader process: sums over several threads have other bits
        try:
            samples = [self._sample(of_train, epoch, index) for index in indices]
            collate = self._collates[of_train]
            if collate is not stacked:
                self._seed_for(of_train, epoch, indices[0])
            return collate(samples)
        finally:
            torch.set_num_threads(threads)

    def units_per_batch(self, batch_size: int) -> int:
        self._train_set.batch_size = batch_size
        return batch_size

    def probe(self) -> Any:
        return self._sample(True, 0, 0)

    def probe_batch(self, units: int) -> Any:
        return self._collates[True]([self.probe()] * units)

    def enter_loader(self) -> None:
        """Use one thread, and stack tensors in memory as the engine does, not in a file on /dev/shm."""
        torch.set_num_threads(1)
        torch_collate.default_collate_fn_map[torch.Tensor] = _stacked

    def _sample(self, of_train: bool, epoch: int, index: int) -> Any:
        if not self._pure[of_train]:
            self._seed_for(of_train, epoch, index)
        dataset: Any = self._train if of_train else self._test
        return dataset[index]

    def _seed_for(self, of_train: bool, epoch: int, index: int) -> None:
        seed = sample_seed(self._seed, epoch if of_train else -1, index)
        seed_python(seed)
        torch.default_generator.manual_seed(seed)  # samples are made on the host


_stack: Callable[..., torch.Tensor] = torch_collate.collate_tensor_fn


def _stacked(batch: Sequence[torch.Tensor], **more: Any) -> torch.Tensor:
    """torch's own function, in a process that it takes for no loader process, so that it uses no shared memory."""
    known, worker._worker_info = worker._worker_info, None
    try:
        return _stack(batch, **more)
    finally:
        worker._worker_info = known
