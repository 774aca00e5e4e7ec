"""A model whose forward and backward pass is the body of its user's loop. Room: runners; torch.

All else is ``TorchAdapter``'s: what forward does to buffers, how gradients are weighted and applied, the state.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from edt_runner.engine.adapter import State
from edt_runner.engine.schedule import TickKind
from edt_runner.pytorch.adapter import TorchAdapter
from edt_runner.pytorch.rates import Rates
from edt_runner.pytorch.trainable import TorchTrainable
from edt_runner.pytorch.turns import Turn
from edt_runner.scaling.update import Scaling

_PASSED = "passed"


class OwnLoopAdapter(TorchAdapter):
    """See ``TorchAdapter``.

    Args:
        model, optimizer, device: as there.
        names: of the metrics that the loop reports beside its loss.
        averages: a gradient is of the mean over its micro-batch; else of the sum.
        rates: goes along with the updates.
        give: lets the user's loop work on a turn.
        name: of the loader, for errors.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        *,
        names: Sequence[str],
        averages: bool,
        rates: Rates,
        give: Callable[[Turn], None],
        name: str,
    ) -> None:
        super().__init__(model, optimizer, not_called, dict.fromkeys(names, not_called), device)
        self._averages, self._rates, self._give, self._name = averages, rates, give, name

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────────────
    def warm_up(self, batch: Any) -> None:
        """The model alone, as far as it can be called with a batch's first part: the body runs for counted batches
        only. What fails here fails there, too, where its user sees it."""
        self.prepare(0)
        with contextlib.suppress(Exception):
            given, _ = self._to_device((batch, ()))
            outputs = self.model(given[0] if isinstance(given, list | tuple) else given)
            if isinstance(outputs, Tensor):
                torch.autograd.backward(outputs.sum())
        self._buffers.restore()
        self._clear_gradients()

    def micro_batch(self, batch: Any, count: int, total: int, seed: int, leaf: Tensor) -> None:
        self._give(self.turn(batch, count, total, seed, leaf))

    def turn(self, batch: Any, count: int, total: int, seed: int, leaf: Tensor) -> Turn:
        """A micro-batch that is ready for the body of the loop."""
        self.prepare(seed)
        given, _ = self._to_device((batch, ()))
        return Turn(self, given, count, total, leaf, self._name)

    def standing(self) -> tuple[Any, ...]:
        versions = tuple(parameter._version for parameter in self._all_parameters.values())
        groups = tuple(
            (key, (id(value), value._version) if isinstance(value, Tensor) else repr(value))
            for group in self.optimizer.param_groups
            for key, value in group.items()
            if key != "params"
        )
        return versions, groups

    def has_gradients(self) -> bool:
        return any(parameter.grad is not None for parameter in self._parameters)

    def take(self, leaf: Tensor, count: int, total: int) -> None:
        self.write_gradients(leaf, count, total, averages=self._averages)

    def take_values(self, leaf: Tensor, count: int, values: Mapping[str, float]) -> None:
        own = [count, *(values.get(name, math.nan) * count for name in self._names)]
        self._sums_of(leaf).copy_(torch.tensor(own, dtype=torch.float64))

    def apply(self, vector: Tensor) -> bool:
        samples = round(self.sums(TickKind.TRAIN, vector)[0])
        whole = super().apply(vector)
        self._rates.updated(samples)
        return whole

    @contextlib.contextmanager
    def rescaled(self, scaling: Scaling) -> Iterator[Sequence[float]]:
        with self._rates.held(), super().rescaled(scaling) as rates:
            yield rates

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────────
    def export_state(self) -> State:
        state = super().export_state()
        return replace(state, meta={**state.meta, _PASSED: self._rates.passed})

    def begin_import(self, meta: Mapping[str, Any], shapes: Mapping[str, Any]) -> Mapping[str, Tensor]:
        self._rates.go_to(int(meta[_PASSED]))
        return super().begin_import(meta, shapes)


@dataclass(frozen=True)
class OwnLoopTrainable(TorchTrainable):
    """See ``Trainable``; the rest as ``OwnLoopAdapter`` takes it."""

    averages: bool
    rates: Rates
    give: Callable[[Turn], None]
    name: str

    def adapter_on(self, device: torch.device) -> OwnLoopAdapter:
        return OwnLoopAdapter(
            self.model,
            self.optimizer,
            device,
            names=tuple(self.metrics),
            averages=self.averages,
            rates=self.rates,
            give=self.give,
            name=self.name,
        )


def own_loop_trainable(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    names: Sequence[str],
    *,
    averages: bool,
    rates: Rates,
    give: Callable[[Turn], None],
    name: str,
) -> OwnLoopTrainable:
    return OwnLoopTrainable(model, optimizer, not_called, dict.fromkeys(names, not_called), averages, rates, give, name)


def leaf_for(adapter: OwnLoopAdapter, device: torch.device) -> Tensor:
    """Memory for one micro-batch's numbers."""
    return torch.zeros(adapter.size(TickKind.TRAIN), dtype=adapter.dtype, device=device)


def not_called(*values: Any) -> Any:
    raise AssertionError("the user's loop computes its loss and its metrics by itself")
