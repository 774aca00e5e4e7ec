"""Small models of both frameworks, for one suite over all adapters: PyTorch, Keras 3 and Keras 2.

A model is asked for by what is special about it:

    linear      one layer, 3 inputs
    wide        the same, 4 inputs
    no bias     the same, 3 inputs
    float64     the same in double precision
    normed      batch normalization before it
    corners     its loss depends on "used" and "frozen", not on "unused"
    shared      a layer that is used twice
    counting    counts its calls
    odd         counts positive inputs: micro-batches differ
    constant    adds state that nothing changes
    averaging   holds a running mean of its inputs, computed by hand
    dropping    dropout
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pytest
import torch
from torch import nn

from edt_runner.frameworks.trainable import EngineAdapter
from edt_runner.schedule import StepKind


def on_side(name: str, *more: object) -> Any:
    """A case for ``parametrize`` or a fixture: the side's name in front; Keras is only there with TensorFlow, and
    Keras 2, whose adapter is that of Keras 3, is of the second tier."""
    marks = {
        "pytorch": [],
        "keras": [pytest.mark.tensorflow],
        "tf_keras": [pytest.mark.tensorflow, pytest.mark.extended],
    }
    return pytest.param(name, *more, marks=marks[name])


Batch = tuple[Any, Any]


class Side(Protocol):
    """One framework, as the suite needs it."""

    optimizers: Mapping[str, Callable[[Any], Any]]
    """Name -> model -> optimizer."""

    def adapter(self, model: str = "linear", optimizer: str = "adam") -> EngineAdapter:
        """Equal calls give equal weights."""

    def batch(self, seed: int = 0, width: int = 3, rows: int = 2) -> Batch: ...

    def joined(self, *batches: Batch) -> Batch:
        """One batch of all their rows."""

    def plain(self, model: str, optimizer: str, *batches: Batch) -> dict[str, np.ndarray[Any, Any]]:
        """The state after a step of the framework's own for each batch."""

    def state(self, adapter: EngineAdapter) -> dict[str, np.ndarray[Any, Any]]:
        """What it exports of the model: last part of a variable's name -> value."""

    def settings(self, optimizer: str) -> Mapping[str, Any]:
        """Other values of the optimizer's settings."""

    def set(self, adapter: EngineAdapter, name: str, value: Any) -> None: ...


def step(adapter: EngineAdapter, *batches: Batch, seed: int = 0) -> dict[str, float]:
    """One tick of several micro-batches, summed in order; what it says of loss and metrics."""
    vectors = []
    counts = [len(targets) for _, targets in batches]
    for number, (batch, count) in enumerate(zip(batches, counts, strict=True)):
        local = torch.full((adapter.size(StepKind.TRAIN),), float("nan"), dtype=adapter.dtype)
        adapter.micro_batch(batch, count, sum(counts), seed + number, local)
        assert not local.isnan().any()
        vectors.append(local)
    reduced = torch.stack(vectors).sum(dim=0)
    before = reduced.clone()
    assert adapter.apply(reduced)
    assert torch.equal(reduced, before)
    return adapter.values(adapter.sums(StepKind.TRAIN, reduced))


def carry(source: EngineAdapter, target: EngineAdapter) -> None:
    """A state goes from one to the other, as between engines."""
    state = source.export_state()
    shapes = {name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in state.tensors.items()}
    for name, place in target.begin_import(state.meta, shapes).items():
        place.copy_(state.tensors[name])
    target.end_import()


def numbers(seed: int, width: int, rows: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    generator = np.random.default_rng(seed)
    inputs = generator.standard_normal((rows, width), dtype=np.float32)
    return inputs, generator.standard_normal((rows, 1), dtype=np.float32)


# ── PyTorch ─────────────────────────────────────────────────────────────────────────────────────────────────────
class _Corners(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused, self.frozen = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 1)
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x) + self.frozen(x)


class _Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.twice, self.last = nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.twice(self.twice(x)))


class _Stateful(nn.Module):
    """``kind``: as in this module."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(3, 1)
        integer = torch.zeros((), dtype=torch.long)
        constant = torch.randn(3, generator=torch.Generator().manual_seed(0))
        first = {"counting": integer, "odd": integer, "constant": constant, "averaging": torch.zeros(3)}
        self.register_buffer("held", first[kind])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "counting":
            self.held += 1
        elif self.kind == "odd":
            self.held += (x > 0).sum()
        elif self.kind == "averaging":
            self.held = 0.5 * self.held + 0.5 * x.detach().mean(0)
        return self.linear(x + self.held if self.kind == "constant" else x)


class PyTorch:
    """``Side`` of PyTorch."""

    optimizers: Mapping[str, Callable[[Any], Any]] = {
        "sgd": lambda model: torch.optim.SGD(_trained(model), 0.1),
        "adam": lambda model: torch.optim.Adam(_trained(model), 0.1),
        "decaying": lambda model: torch.optim.AdamW(_trained(model), 0.1, weight_decay=0.5),
        "momentum": lambda model: torch.optim.SGD(_trained(model), 0.1, momentum=0.9),
        "nesterov": lambda model: torch.optim.SGD(_trained(model), 0.1, momentum=0.9, nesterov=True),
        "amsgrad": lambda model: torch.optim.Adam(_trained(model), 0.1, amsgrad=True),
        "adamw of a tensor": lambda model: torch.optim.AdamW(_trained(model), torch.tensor(0.1)),
        "rmsprop": lambda model: torch.optim.RMSprop(_trained(model)),
        "adagrad": lambda model: torch.optim.Adagrad(_trained(model)),
        "nadam": lambda model: torch.optim.NAdam(_trained(model)),
        "asgd": lambda model: torch.optim.ASGD(_trained(model)),
    }

    def adapter(self, model: str = "linear", optimizer: str = "adam") -> EngineAdapter:
        from edt_runner.frameworks.pytorch.adapter import TorchAdapter

        net = self._model(model)
        return TorchAdapter(net, self.optimizers[optimizer](net), nn.functional.mse_loss, {}, torch.device("cpu"))

    def _model(self, name: str) -> nn.Module:
        torch.manual_seed(0)
        made: dict[str, Callable[[], nn.Module]] = {
            "linear": lambda: nn.Linear(3, 1),
            "wide": lambda: nn.Linear(4, 1),
            "no bias": lambda: nn.Linear(3, 1, bias=False),
            "float64": lambda: nn.Linear(3, 1).double(),
            "normed": lambda: nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1)),
            "corners": _Corners,
            "shared": _Shared,
            "dropping": lambda: nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 1)),
        }
        return made[name]() if name in made else _Stateful(name)

    def batch(self, seed: int = 0, width: int = 3, rows: int = 2) -> Batch:
        inputs, targets = numbers(seed, width, rows)
        return torch.from_numpy(inputs), torch.from_numpy(targets)

    def joined(self, *batches: Batch) -> Batch:
        return torch.cat([inputs for inputs, _ in batches]), torch.cat([targets for _, targets in batches])

    def plain(self, model: str, optimizer: str, *batches: Batch) -> dict[str, np.ndarray[Any, Any]]:
        net = self._model(model)
        chosen = self.optimizers[optimizer](net)
        for inputs, targets in batches:
            chosen.zero_grad()
            nn.functional.mse_loss(net(inputs), targets).backward()
            chosen.step()
        return {_last(name): value.numpy() for name, value in net.state_dict().items()}

    def state(self, adapter: EngineAdapter) -> dict[str, np.ndarray[Any, Any]]:
        tensors = adapter.export_state().tensors.items()
        names = ("model.", "buffer.")
        return {_last(n.partition(".")[2]): t.numpy().copy() for n, t in tensors if n.startswith(names)}

    def settings(self, optimizer: str) -> Mapping[str, Any]:
        of_adam = {"lr": 0.05, "betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.25}
        return {"lr": 0.05, "momentum": 0.5, "nesterov": False} if optimizer == "nesterov" else of_adam

    def set(self, adapter: EngineAdapter, name: str, value: Any) -> None:
        adapter.optimizers.param_groups[0][name] = value  # type: ignore[attr-defined]


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


# ── Keras ───────────────────────────────────────────────────────────────────────────────────────────────────────
class Keras:
    """``Side`` of Keras, of either version."""

    def __init__(self, module: str) -> None:
        self.keras: Any = importlib.import_module(module)
        optimizers = self.keras.optimizers
        schedule = optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
        self.optimizers: Mapping[str, Callable[[Any], Any]] = {
            "sgd": lambda model: optimizers.SGD(0.1),
            "adam": lambda model: optimizers.Adam(0.1),
            "decaying": lambda model: optimizers.AdamW(0.1, weight_decay=0.5),
            "momentum": lambda model: optimizers.SGD(0.1, momentum=0.9),
            "nesterov": lambda model: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
            "amsgrad": lambda model: optimizers.Adam(0.1, amsgrad=True),
            "scheduled": lambda model: optimizers.SGD(schedule),
            "averaged": lambda model: optimizers.Adam(0.1, use_ema=True, ema_overwrite_frequency=2),
            "nadam": lambda model: optimizers.Nadam(),
            "ftrl": lambda model: optimizers.Ftrl(),
            "scaled": lambda model: self._scaled(optimizers.Adam(0.1)),
        }
        if module == "tf_keras":
            self.keras.backend.experimental.enable_tf_random_generator()  # as ``enter`` does
            self.optimizers = {
                **self.optimizers,
                "old nadam": lambda model: optimizers.legacy.Nadam(0.1),
                "old scheduled": lambda model: optimizers.legacy.SGD(schedule, momentum=0.9),
                "old adam": lambda model: optimizers.legacy.Adam(0.1),
                "old sgd with decay": lambda model: optimizers.legacy.SGD(0.1, decay=0.1, momentum=0.9),
            }
        else:
            self.optimizers = {
                **self.optimizers,
                "every second": lambda model: optimizers.SGD(0.1, gradient_accumulation_steps=2),
            }

    def _scaled(self, inner: Any) -> Any:
        return self.keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=8.0, dynamic_growth_steps=2)

    def adapter(self, model: str = "linear", optimizer: str = "adam") -> EngineAdapter:
        net = self.model(model)
        width = 4 if model == "wide" else 3
        return adapter_of(net, "mse", self.optimizers[optimizer](net), [], self.batch(0, width))

    def model(self, name: str) -> Any:
        self.keras.utils.set_random_seed(0)
        layers = self.keras.layers
        width, kind = (4 if name == "wide" else 3), ("float64" if name == "float64" else None)
        inputs = self.keras.Input((width,), dtype=kind)
        last = layers.Dense(1, use_bias=name != "no bias", dtype=kind, name="last")
        if name == "corners":
            used, unused, frozen = (layers.Dense(1, name=each) for each in ("used", "unused", "frozen"))
            frozen.trainable = False
            return self._corners(used, unused, frozen)
        if name == "shared":
            twice = layers.Dense(3, name="twice")
            return self.keras.Model(inputs, last(twice(twice(inputs))))
        before = {
            "normed": lambda: [layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm")],
            "dropping": lambda: [layers.Dense(8), layers.Dropout(0.5)],
        }.get(name, lambda: [] if name in ("linear", "wide", "no bias", "float64") else [self._stateful(name)])
        return self.keras.Sequential([inputs, *before(), last])

    def _corners(self, used: Any, unused: Any, frozen: Any) -> Any:
        class Corners(self.keras.Model):  # type: ignore[name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.used, self.unused, self.frozen = used, unused, frozen
                self.unused.build((None, 3))

            def call(self, x: Any) -> Any:
                return self.used(x) + self.frozen(x)

        return Corners()

    def _stateful(self, kind: str) -> Any:
        import tensorflow as tf

        shape: tuple[int, ...] = () if kind in ("counting", "odd") else (3,)
        first = np.random.default_rng(0).standard_normal(3) if kind == "constant" else np.zeros(shape)

        class Stateful(self.keras.layers.Layer):  # type: ignore[name-defined]
            def build(self, input_shape: Any) -> None:
                self.held = self.add_weight(
                    shape=shape,
                    dtype="float32" if shape else "int32",
                    initializer=lambda shape, dtype=None: tf.cast(tf.constant(first), dtype),
                    trainable=False,
                    name="held",
                )
                super().build(input_shape)

            def call(self, x: Any, training: bool = False) -> Any:
                if training and kind == "counting":
                    self.held.assign(self.held + 1)
                elif training and kind == "odd":
                    self.held.assign(self.held + tf.reduce_sum(tf.cast(x > 0, tf.int32)))
                elif training and kind == "averaging":
                    self.held.assign(0.5 * self.held + 0.5 * tf.reduce_mean(x, 0))
                return x + self.held if kind == "constant" else x

        return Stateful(name="stateful")

    def batch(self, seed: int = 0, width: int = 3, rows: int = 2) -> Batch:
        return numbers(seed, width, rows)

    def joined(self, *batches: Batch) -> Batch:
        return np.concatenate([inputs for inputs, _ in batches]), np.concatenate([targets for _, targets in batches])

    def plain(self, model: str, optimizer: str, *batches: Batch) -> dict[str, np.ndarray[Any, Any]]:
        net = self.model(model)
        net.compile(optimizer=self.optimizers[optimizer](net), loss="mse")
        for inputs, targets in batches:
            net.train_on_batch(inputs, targets)
        return {name: np.asarray(weight) for name, weight in zip(self._names(net), net.weights, strict=True)}

    def state(self, adapter: EngineAdapter) -> dict[str, np.ndarray[Any, Any]]:
        tensors = adapter.export_state().tensors.items()
        values = [tensor.numpy().copy() for name, tensor in tensors if name.startswith("model.")]
        return dict(zip(self._names(adapter.model), values, strict=True))  # type: ignore[attr-defined]

    def settings(self, optimizer: str) -> Mapping[str, Any]:
        of_adam = {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-6}
        return {"learning_rate": 0.05, "momentum": 0.5} if optimizer == "nesterov" else of_adam

    def set(self, adapter: EngineAdapter, name: str, value: Any) -> None:
        setattr(adapter.model.optimizer, name, value)  # type: ignore[attr-defined]

    def _names(self, net: Any) -> list[str]:
        return [_last(getattr(weight, "path", weight.name).partition(":")[0]) for weight in net.weights]


def adapter_of(model: Any, loss: Any, optimizer: Any, metrics: Any, probe: Any, *, by_rows: bool = False) -> Any:
    """Of any Keras model, checked and compiled as ``FabricModel`` does it."""
    from edt_runner.frameworks.computing import Asked
    from edt_runner.frameworks.tensorflow.adapter import TensorFlowAdapter
    from fabric_model.keras import trainable

    chosen = trainable(model, optimizer, None, Asked(loss, metrics))
    return TensorFlowAdapter(chosen.keras, model, probe, by_rows=by_rows, sums=chosen.sums)


def _last(name: str) -> str:
    """``used/kernel`` of ``corners/used/kernel``, ``used/weight`` of ``used.weight``: layer and variable."""
    return "/".join(name.replace(".", "/").split("/")[-2:])
