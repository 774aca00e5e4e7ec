"""The adapter's corners: frozen, shared and unused parameters, buffers of every kind, optimizer state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from edt_runner.engine.schedule import TickKind
from edt_runner.errors import StateMismatch, UnsupportedState
from edt_runner.torch_adapter import TorchAdapter

CPU = torch.device("cpu")


def adapter_of(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> TorchAdapter:
    chosen = optimizer or torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 0.1)
    return TorchAdapter(model, chosen, lambda outputs, targets: ((outputs - targets) ** 2).mean(), {}, CPU)


def step(adapter: TorchAdapter, *batches: Any) -> None:
    """One tick of several micro-batches of two samples, summed in order."""
    leaves = []
    for number, batch in enumerate(batches):
        leaf = torch.full((adapter.size(TickKind.TRAIN),), float("nan"))
        adapter.micro_batch(batch, 2, 2 * len(batches), number, leaf)
        assert not leaf.isnan().any()
        leaves.append(leaf)
    adapter.apply(torch.stack(leaves).sum(dim=0))


def batch(seed: int = 0, width: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, width, generator=generator), torch.randn(2, 1, generator=generator)


def test_two_micro_batches_make_the_step_of_one_large_batch() -> None:
    torch.manual_seed(0)
    ours, plain = nn.Linear(3, 1), nn.Linear(3, 1)
    plain.load_state_dict(ours.state_dict())
    step(adapter_of(ours, torch.optim.SGD(ours.parameters(), 0.1)), batch(1), batch(2))
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    (x1, y1), (x2, y2) = batch(1), batch(2)
    ((plain(torch.cat([x1, x2])) - torch.cat([y1, y2])) ** 2).mean().backward()
    optimizer.step()
    torch.testing.assert_close(ours.weight, plain.weight)


def test_frozen_parameters_stay_and_unused_ones_get_no_gradient() -> None:
    """An unused parameter under Adam with weight decay moves if it gets a zero gradient, and must not."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused, self.frozen = nn.Linear(3, 1), nn.Linear(3, 1), nn.Linear(3, 1)
            self.frozen.requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x) + self.frozen(x)

    model = Model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, weight_decay=0.5)
    step(adapter_of(model, optimizer), batch())
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"used.weight", "used.bias"}


def test_batch_normalization_commits_the_mean_of_its_micro_batches_and_counts_one_step() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    adapter = adapter_of(model)
    step(adapter, batch(1), batch(2))
    expected = 0.1 * (batch(1)[0].mean(0) + batch(2)[0].mean(0)) / 2
    torch.testing.assert_close(model[0].running_mean, expected)
    assert int(model[0].num_batches_tracked) == 1
    assert adapter.take_warnings() == []


def test_a_buffer_that_cannot_be_combined_ends_the_guarantee_by_name() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 1)
            self.register_buffer("positives", torch.zeros((), dtype=torch.long))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.positives += (x > 0).sum()
            return self.linear(x)

    adapter = adapter_of(Odd())
    step(adapter, batch(1), batch(2))
    assert [what for what, _ in adapter.take_warnings()] == ["positives"]
    step(adapter, batch(1), batch(2))
    assert adapter.take_warnings() == []  # told once


def test_evaluating_changes_no_buffer() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))
    adapter = adapter_of(model)
    digest = adapter.digest()
    adapter.evaluate(batch(), 2, 0, torch.empty(adapter.size(TickKind.VALIDATE)))
    assert adapter.digest() == digest


def carry(source: TorchAdapter, target: TorchAdapter) -> None:
    state = source.export_state()
    shapes = {name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in state.tensors.items()}
    for name, place in target.begin_import(state.meta, shapes).items():
        place.copy_(state.tensors[name])
    target.end_import()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adam(p, 0.1, amsgrad=True),
        lambda p: torch.optim.AdamW(p, torch.tensor(0.1)),
        torch.optim.RMSprop,
        torch.optim.Adagrad,
        torch.optim.NAdam,
        torch.optim.ASGD,
    ],
)
def test_a_carried_state_trains_on_with_the_same_bits(make: Any) -> None:
    torch.manual_seed(0)
    one, other = nn.Linear(3, 1), nn.Linear(3, 1)
    first, second = adapter_of(one, make(one.parameters())), adapter_of(other, make(other.parameters()))
    step(first, batch(1))
    first.optimizer.param_groups[0]["weight_decay"] = 0.01
    carry(first, second)
    assert first.digest() == second.digest()
    for adapter in (first, second):
        step(adapter, batch(2), batch(3))
    assert first.digest() == second.digest()


def test_shared_parameters_are_carried_once_under_their_first_name() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    model[1].weight = model[0].weight
    adapter = adapter_of(model)
    step(adapter, batch())
    assert "model.1.weight" not in adapter.export_state().tensors
    other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    other[1].weight = other[0].weight
    target = adapter_of(other)
    carry(adapter, target)
    assert torch.equal(other[1].weight, model[1].weight)


def test_a_model_of_another_shape_is_named_with_both_shapes() -> None:
    with pytest.raises(StateMismatch, match=r"weight: float32 \[1, 3\] in the training, float32 \[1, 4\]"):
        carry(adapter_of(nn.Linear(3, 1)), adapter_of(nn.Linear(4, 1)))


def test_a_model_with_other_names_is_refused_by_name() -> None:
    with pytest.raises(StateMismatch, match=r"model\.bias"):
        carry(adapter_of(nn.Linear(3, 1)), adapter_of(nn.Linear(3, 1, bias=False)))


def test_optimizer_state_that_cannot_travel_is_named() -> None:
    adapter = adapter_of(nn.Linear(3, 1))
    step(adapter, batch())
    next(iter(adapter.optimizer.state.values()))["history"] = object()
    with pytest.raises(UnsupportedState, match="'history' is a object"):
        adapter.export_state()


def test_a_float64_model_is_summed_in_float64() -> None:
    assert adapter_of(nn.Linear(3, 1).double()).dtype is torch.float64
    assert adapter_of(nn.Linear(3, 1)).dtype is torch.float32


def test_a_buffer_that_forward_assigns_anew_is_committed_all_the_same() -> None:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 1)
            self.register_buffer("mean", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean = 0.5 * self.mean + 0.5 * x.detach().mean(0)
            return self.linear(x)

    model = Average()
    adapter = adapter_of(model)
    step(adapter, batch(1), batch(2))
    expected = 0.25 * (batch(1)[0].mean(0) + batch(2)[0].mean(0))
    torch.testing.assert_close(adapter.export_state().tensors["buffer.mean"], expected)
    assert torch.equal(model.mean, adapter.export_state().tensors["buffer.mean"])


def test_a_constant_buffer_stays_as_it_is_to_the_bit() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 1)
            self.register_buffer("codes", torch.randn(3, generator=torch.Generator().manual_seed(0)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x + self.codes)

    model = Constant()
    before = model.codes.clone()
    step(adapter_of(model), batch(1), batch(2), batch(3))
    assert torch.equal(model.codes, before)
