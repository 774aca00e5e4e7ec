"""Corners of PyTorch alone; what all adapters promise is in test_adapters."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from edt_runner.comm.tree_reduction import Sink
from edt_runner.errors import UnsupportedState
from edt_runner.frameworks.pytorch.adapter import TorchAdapter
from edt_runner.schedule import StepKind
from support.sides import PyTorch, carry, step

SIDE = PyTorch()


def test_what_a_script_has_changed_in_an_optimizers_groups_is_carried() -> None:
    first, second = _adapter("decaying"), _adapter("decaying")
    step(first, SIDE.batch(1))
    first.optimizers.param_groups[0]["weight_decay"] = 0.01
    carry(first, second)
    for adapter in (first, second):
        step(adapter, SIDE.batch(2))
    assert first.digest() == second.digest()
    assert second.optimizers.param_groups[0]["weight_decay"] == 0.01


def test_optimizer_state_that_cannot_travel_is_named() -> None:
    adapter = _adapter("adam")
    step(adapter, SIDE.batch())
    next(iter(adapter.optimizers.members[0].state.values()))["history"] = object()
    with pytest.raises(UnsupportedState, match="'history' is a object"):
        adapter.export_state()


def test_batch_normalization_counts_one_batch_a_step() -> None:
    adapter = SIDE.adapter("normed")
    step(adapter, SIDE.batch(1), SIDE.batch(2))
    assert int(SIDE.state(adapter)["0/num_batches_tracked"]) == 1


def _adapter(optimizer: str) -> Any:
    return SIDE.adapter("linear", optimizer)


def test_what_a_step_reads_of_a_vector_at_once_is_what_it_reads_piece_by_piece() -> None:
    """As on a GPU, where each read waits. The memory of the vector is used again in each step."""
    generator = torch.Generator().manual_seed(7)
    batches = [(torch.randn(4, 4, generator=generator), torch.randn(4, 1, generator=generator)) for _ in range(4)]
    states = []
    for at_once in (False, True):
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        torch.manual_seed(1)
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        adapter = TorchAdapter(
            model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss, {}, torch.device("cpu")
        )
        adapter.reads_at_once = at_once
        vector = torch.empty(adapter.size(StepKind.TRAIN))
        for number, batch in enumerate(batches):
            adapter.begin_step()
            adapter.stream(batch, 4, 4, number, Sink(vector, adds=False))
            assert adapter.has_finite_gradient(vector)
            assert adapter.sums(StepKind.TRAIN, vector)[0] == 4
            assert adapter.apply(vector)
        states.append({name: value.clone() for name, value in model.state_dict().items()})
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert int(states[0]["1.num_batches_tracked"]) == 4


def test_an_engine_without_samples_reads_the_step_that_it_applies() -> None:
    """It computes no pass between two steps, and the reduced vector is in the same memory."""
    model = nn.Linear(2, 1)
    adapter = TorchAdapter(
        model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss, {}, torch.device("cpu")
    )
    adapter.reads_at_once = True
    vector = torch.empty(adapter.size(StepKind.TRAIN))
    batch = (torch.ones(4, 2), torch.zeros(4, 1))
    adapter.stream(batch, 4, 8, 1, Sink(vector, adds=False))
    assert adapter.on_host(vector).sections.sums.tolist()[0] == 4
    vector.mul_(0.5)  # the next step's result arrives
    adapter.begin_step()
    assert adapter.on_host(vector).sections.sums.tolist()[0] == 2
    assert adapter.sums(StepKind.TRAIN, vector)[0] == 2


def test_a_model_whose_used_parameters_change_from_batch_to_batch_keeps_few_patterns() -> None:
    model = nn.ModuleList(nn.Linear(1, 1) for _ in range(6))
    adapter = TorchAdapter(
        model, torch.optim.SGD(model.parameters(), 0.1), nn.functional.mse_loss, {}, torch.device("cpu")
    )
    place = torch.empty(12)
    for pattern in itertools.islice(itertools.product((False, True), repeat=12), 100):
        adapter._write_present(place, pattern)
        assert place.tolist() == list(map(float, pattern))
    assert len(adapter._present) <= 16
