"""Gradients that are given away during the backward pass are those that are there after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from edt_runner.comm.tree_reduction import Sink
from edt_runner.errors import PeerLost
from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.schedule import StepKind
from edt_runner.step_times import Phase, clock

WIDTH, CLASSES = 1500, 7
"""A layer of 1500 x 1500 float32 is larger than the model that is reduced in one piece."""


class Plain(nn.Module):
    """Layers, a batch normalization, and a layer that no pass uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, CLASSES)
        self.unused = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.norm(self.first(x))))  # type: ignore[no-any-return]


class Sparse(nn.Module):
    """An embedding with sparse gradients, and a shared weight."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WIDTH, WIDTH, sparse=True)
        self.inner, self.last = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        words = self.words(x[:, :4].abs().long())
        return self.last(self.inner(self.inner(words.sum(1))))  # type: ignore[no-any-return]


class Reentrant(nn.Module):
    """A shared layer behind two checkpoints, each of which runs a backward pass of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        for _ in range(2):
            x = checkpoint(self.inner, x, use_reentrant=True)
        return self.last(x)  # type: ignore[no-any-return]


def adapter_of(network: Callable[[], nn.Module], **asked: Any) -> TorchAdapter:
    torch.manual_seed(3)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return TorchAdapter(model, optimizer, nn.functional.cross_entropy, {}, torch.device("cpu"), **asked)


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(6, WIDTH, generator=generator), torch.randint(CLASSES, (6,), generator=generator)


def vectors_of(adapter: TorchAdapter, kind: StepKind = StepKind.TRAIN) -> tuple[Tensor, Tensor, list[tuple[int, int]]]:
    """A micro-batch's vector in one piece, and given away in parts and added to ones; and the parts."""
    whole, summed = torch.empty(adapter.size(kind)), torch.ones(adapter.size(kind))
    parts: list[tuple[int, int]] = []
    adapter.micro_batch(batch(), 6, 24, 7, whole)
    sink = Sink(summed, adds=True, ready=lambda start, end: parts.append((start, end)))
    adapter.stream(batch(), 6, 24, 7, sink)
    assert sink.missing == 0
    return whole, summed, parts


@pytest.mark.parametrize("network", [Plain, Sparse])
def test_a_gradient_that_is_given_away_is_the_one_that_stays(network: Callable[[], nn.Module]) -> None:
    adapter = adapter_of(network)
    adapter.warm_up(batch())
    whole, summed, parts = vectors_of(adapter)
    assert torch.equal(summed, torch.ones(len(whole)) + whole)
    assert len(parts) == len(list(adapter.model.parameters())) + 1
    assert parts.index((0, WIDTH * WIDTH)) > 0  # the first layer's weights are not the first
    assert all(parameter.grad is None for parameter in adapter.model.parameters())


def test_a_trial_finds_out_which_gradients_come_in_several_parts() -> None:
    """They are all there only after the pass, and then given away."""
    adapter = adapter_of(Reentrant)
    adapter.warm_up(batch())
    assert not adapter._gradients.streams
    whole, summed, _ = vectors_of(adapter)
    assert torch.equal(summed, torch.ones(len(whole)) + whole)


def test_a_gradient_that_comes_in_parts_after_all_costs_the_try_of_a_step() -> None:
    adapter = adapter_of(Reentrant)
    with pytest.raises(PeerLost, match="several parts"):
        vectors_of(adapter)
    whole, summed, _ = vectors_of(adapter)
    assert torch.equal(summed, torch.ones(len(whole)) + whole)


def test_a_reduced_gradient_becomes_the_parameters_without_a_copy() -> None:
    adapter = adapter_of(Plain)
    adapter.warm_up(batch())
    reduced = torch.ones(adapter.size(StepKind.TRAIN))
    reduced[adapter.gradient_size : adapter.gradient_size + len(list(adapter.model.parameters()))] = 1
    adapter.apply(reduced)
    first = next(adapter.model.parameters())
    assert first.grad is not None
    assert first.grad.data_ptr() == reduced.data_ptr()


def test_vectors_that_are_dropped_are_freed() -> None:
    """A clipped gradient is a new vector in each step."""
    adapter = adapter_of(Plain)
    adapter.warm_up(batch())
    for _ in range(5):
        adapter._gradients.set(torch.zeros(adapter.gradient_size) / 2, [1.0] * 8)
        adapter._gradients.clear()
    assert len(adapter._gradients._views) == 0


class Keeping(torch.optim.Optimizer):
    """Remembers the last gradient itself, as one's own optimizer may where ``zero_grad`` sets None."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["last"] = parameter.grad


def test_a_gradient_that_an_optimizer_keeps_stays_what_it_was() -> None:
    model = nn.Linear(3, CLASSES)
    adapter = TorchAdapter(model, Keeping(model.parameters()), nn.functional.cross_entropy, {}, torch.device("cpu"))
    reduced = torch.ones(adapter.size(StepKind.TRAIN))
    adapter.apply(reduced)
    reduced.fill_(2.0)  # the next step's
    assert torch.equal(adapter.optimizers.members[0].state[model.weight]["last"], torch.ones(CLASSES, 3))


def test_a_sink_that_fails_leaves_the_clock_in_the_phase_that_it_was_in() -> None:
    def fail(start: int, end: int) -> None:
        raise PeerLost("an engine is gone")

    with clock.within(Phase.BACKWARD):
        with pytest.raises(PeerLost):
            Sink(torch.zeros(2), adds=True, ready=fail).put(0, torch.ones(2))
        assert clock.enter(Phase.BACKWARD) is Phase.BACKWARD
