"""A PyTorch user's model, loss, optimizer and metrics, as ``fabric_model`` has checked them. Room: runners; torch."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from edt_runner.framework import Framework
from edt_runner.pytorch.adapter import Metric, TorchAdapter
from edt_runner.pytorch.framework import FRAMEWORK
from edt_runner.pytorch.samples import TorchSamples
from edt_runner.trainable import Collate, Samples


@dataclass(frozen=True)
class TorchTrainable:
    """See ``Trainable``; ``loss_function`` and ``metrics`` as ``TorchAdapter`` takes them."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss_function: Callable[[Any, Any], Any]
    metrics: Mapping[str, Metric]

    @property
    def framework(self) -> Framework:
        return FRAMEWORK

    @property
    def optimizer_name(self) -> str:
        return type(self.optimizer).__qualname__

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
        """Nothing: a PyTorch user's own loop would end with its last step."""


def _ask_for_determinism(adapter: TorchAdapter) -> None:
    """On a GPU: deterministic algorithms where there are some; the first op that has none ends the guarantee."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False  # it would let each process choose algorithms by its own timings
    warnings.filterwarnings("always", message=".*does not have a deterministic implementation.*")
    show = warnings.showwarning

    def showwarning(message: Warning | str, *rest: Any, **named: Any) -> None:
        text = str(message)
        if "does not have a deterministic implementation" in text:
            adapter.end_guarantee(text.split(maxsplit=1)[0], "has no deterministic implementation on this device")
        show(message, *rest, **named)

    warnings.showwarning = showwarning
