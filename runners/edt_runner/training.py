"""What a user asked of ``train()``, and the data it is to be done on, in one process. Room: runners; torch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from edt_runner import context, environment
from edt_runner.engine.schedule import Schedule
from edt_runner.errors import UsageError
from edt_runner.torch_adapter import Metric, TorchAdapter
from edt_runner.torch_loader import Collate, TorchLoader


class Logger(Protocol):
    """The 4.x logger callback."""

    def on_train_begin(self) -> None: ...
    def on_train_end(self) -> None: ...
    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None: ...
    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None: ...


@dataclass(frozen=True)
class TrainRequest:
    """Everything a user gave to the constructor and to train(), checked by the caller."""

    model: nn.Module
    datasets_function: Callable[[], tuple[Any, Any]]
    loss_function: Callable[[Any, Any], Any]
    optimizer: torch.optim.Optimizer
    metrics: Mapping[str, Metric]
    worker_logger: Logger | None
    driver_logger: Logger | None
    collate: Collate | None
    epochs: int
    batch_size: int
    logical_workers: int | None
    """E; None: as many as slots are offered."""
    loader_processes: int
    validation_freq: int
    checkpoint_freq: int
    seed: int | None
    exact: bool


@dataclass
class Training:
    """A request and its data, in one process."""

    request: TrainRequest
    offered: int
    """Slots that the job may hold at most."""
    seed: int
    train: Any = field(init=False)
    test: Any = field(init=False)
    schedule: Schedule = field(init=False)

    def __post_init__(self) -> None:
        self.train, self.test = _datasets(self.request.datasets_function)
        request = self.request
        self.schedule = Schedule(
            train_samples=len(self.train),
            test_samples=len(self.test) if self.test is not None else 0,
            logical_workers=request.logical_workers or self.offered,
            batch_size=request.batch_size,
            epochs=request.epochs,
            validation_freq=request.validation_freq,
        )

    def adapter(self, device: torch.device) -> TorchAdapter:
        request = self.request
        return TorchAdapter(request.model, request.optimizer, request.loss_function, request.metrics, device)

    def loader(self, processes: int) -> TorchLoader:
        return TorchLoader(self.train, self.test, self.seed, self.request.collate, processes)

    def identity(self, arguments: Sequence[str]) -> dict[str, Any]:
        """What a checkpoint must share with this training to be gone on from, by the name a user knows it by."""
        request = self.request
        shapes = [[name, str(p.dtype), list(p.shape)] for name, p in request.model.named_parameters()]
        return {
            **self.schedule.to_json_object(),
            "seed": self.seed,
            "reduction": "exact" if request.exact else "fast",
            "arguments": list(arguments),
            "optimizer": type(request.optimizer).__qualname__,
            "parameters": fingerprint(shapes),
            **self.facts(self.loader(0).probe()),
        }

    def facts(self, probe: Any) -> dict[str, Any]:
        """What must be equal in all processes: lengths, and the first training sample."""
        return {
            "training samples": self.schedule.train_samples,
            "test samples": self.schedule.test_samples,
            "first training sample": fingerprint(probe),
        }


def seed_of(request: TrainRequest, role: context.Context | None) -> int:
    """The user's own seed, else the job's."""
    if request.seed is not None:
        return request.seed
    return role.letter.seed if role is not None else environment.seed()


def model_dir(result_dir: str) -> Path:
    """Where the user's own files go, as WMLA names them."""
    return Path(os.environ.get("SAVED_MODEL_DIR") or Path(result_dir) / "model") / "train"


def fingerprint(value: Any) -> str:
    """A short digest of a sample: of all its numbers, whatever they are held in."""
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()[:16]


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().float().numpy() if value.is_floating_point() else value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            digest.update(str(key).encode())
            _feed(digest, value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            _feed(digest, item)
    elif isinstance(value, bool | int | float | str | bytes | None):
        digest.update(repr(value).encode())
    else:
        digest.update(type(value).__qualname__.encode())  # an object: its contents cannot be compared


def _datasets(function: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    found = function()
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise UsageError(f"datasets_function: returned {type(found).__name__}, takes a pair (train, test)")
    for name, dataset in zip(("train", "test"), found, strict=True):
        if dataset is None and name == "test":
            continue
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise UsageError(
                f"datasets_function: the {name} data set is a {type(dataset).__name__} without "
                "__getitem__ and __len__; takes a map-style data set"
            )
    if not len(found[0]):
        raise UsageError("datasets_function: the train data set is empty, takes at least one sample")
    return found[0], found[1]
